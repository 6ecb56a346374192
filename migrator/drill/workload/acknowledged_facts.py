"""Facts from acknowledged changes, which an image must have afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from migrator.image.model import ConfigResource, MetadataImage, QuotaKey, ScramKey
from migrator.records.metadata import ConfigResourceType, QuotaEntity
from migrator.values import value


@value
class TopicFact:
    """Number of partitions; None: there is no such topic."""

    name: str

    def in_image(self, image: MetadataImage) -> Any:
        topic = image.topics.by_name(self.name)
        return None if topic is None else len(topic.partitions)


@value
class ConfigFact:
    """The value of a key; None: not set."""

    resource_type: ConfigResourceType
    name: str
    key: str

    def in_image(self, image: MetadataImage) -> Any:
        return image.configs.get(ConfigResource(self.resource_type, self.name), {}).get(self.key)


@value
class QuotaFact:
    """A quota's value; None: not set."""

    entity: tuple[tuple[str, str | None], ...]
    key: str

    def in_image(self, image: MetadataImage) -> Any:
        key: QuotaKey = frozenset(QuotaEntity(kind, name) for kind, name in self.entity)
        return image.quotas.get(key, {}).get(self.key)


@value
class ScramFact:
    """Iterations of a credential; None: there is none."""

    user: str
    mechanism: int

    def in_image(self, image: MetadataImage) -> Any:
        credential = image.scram.get(ScramKey(self.mechanism, self.user))
        return None if credential is None else credential.iterations


@value
class AclFact:
    """Whether the principal has an ACL of this prefix."""

    resource_name: str
    principal: str

    def in_image(self, image: MetadataImage) -> Any:
        return any(
            acl.resource_name == self.resource_name and acl.principal == self.principal for acl in image.acls.values()
        )


Fact = TopicFact | ConfigFact | QuotaFact | ScramFact | AclFact


class Ledger:
    """Facts with their last acknowledged values; a fact is in doubt when its last change had no answer."""

    def __init__(self) -> None:
        self._known: dict[Fact, Any] = {}
        self._in_doubt: set[Fact] = set()

    def doubt(self, fact: Fact) -> None:
        """A change of it was sent."""
        self._in_doubt.add(fact)

    def is_in_doubt(self, fact: Fact) -> bool:
        return fact in self._in_doubt

    def confirm(self, fact: Fact, expected: Any) -> None:
        """A change of it was acknowledged."""
        self._in_doubt.discard(fact)
        self._known[fact] = expected

    def get(self, fact: Fact) -> Any:
        return self._known.get(fact)

    def select(self, wanted: Callable[[Fact], bool]) -> list[Fact]:
        """Facts that hold something, in the order of their first confirmation."""
        return [fact for fact, held in self._known.items() if held is not None and wanted(fact)]

    def missing_from(self, image: MetadataImage) -> Iterator[str]:
        """A sentence for each acknowledged change that the image does not have."""
        for fact, expected in self._known.items():
            if fact not in self._in_doubt and (found := fact.in_image(image)) != expected:
                yield f"{fact}: {expected!r} was acknowledged, the image has {found!r}"

    def __len__(self) -> int:
        return len(self._known)
