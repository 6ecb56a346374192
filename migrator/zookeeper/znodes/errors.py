"""What is wrong with a znode, for a person."""

from __future__ import annotations

from migrator.errors import OperatorError


class ZnodeError(OperatorError):
    """A znode that does not decode, or content that ZooKeeper cannot hold.

    Never carries the data itself: it may be a secret. Crosses process borders (pickle) unharmed.

    :param path: the znode, without chroot.
    :param fault: one sentence, without a final full stop.
    """

    def __init__(self, path: str, fault: str, remedy: str = "") -> None:
        super().__init__(fault, where=path, remedy=remedy)

    def __reduce__(self) -> tuple[type[ZnodeError], tuple[str, str, str]]:
        return ZnodeError, (self.where, self.what, self.remedy)
