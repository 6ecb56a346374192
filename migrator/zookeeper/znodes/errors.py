"""The error about a znode, for the operator."""

from __future__ import annotations

from migrator.errors import OperatorError


class ZnodeError(OperatorError):
    """A znode does not decode, or ZooKeeper cannot hold a content.

    The message never quotes the data, which may be secret. The error can be pickled, for worker processes.

    :param path: the znode, without chroot.
    :param fault: one sentence, without a final full stop.
    """

    def __init__(self, path: str, fault: str, remedy: str = "") -> None:
        super().__init__(fault, where=path, remedy=remedy)

    def __reduce__(self) -> tuple[type[ZnodeError], tuple[str, str, str]]:
        return ZnodeError, (self.where, self.what, self.remedy)
