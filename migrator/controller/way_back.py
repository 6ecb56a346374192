"""After the end of a migration, the controllers refuse features that ZooKeeper mode does not have (ADR 63). So the
finished migration can still be reopened. An operator who needs such a feature closes the way back first. That is a
configuration of the resource that also has the rollout's lock: every controller knows it, and stock controllers keep it
in snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.config.keys import KEEP_WAY_BACK
from migrator.controller.context import KRAFT_VERSION, Context
from migrator.controller.decision import Decision, RefusedError
from migrator.controller.given_up import QUORUM
from migrator.controller.rollout_lock import KEY as LOCK
from migrator.image.model import ConfigResource, MetadataImage
from migrator.records.metadata import ConfigRecord, ConfigResourceType, MetadataRecord, ZkMigrationState
from migrator.records.versions import FEATURE_NAME, parse_version

KEY: Final = "way.back.closed"
WORDS_MAX: Final = 1000
NEWEST: Final = parse_version("3.9-IV0")
"""The newest metadata.version that a broker can have in ZooKeeper mode."""
KRAFT_ONLY: Final = frozenset({"remote.log.copy.disable", "remote.log.delete.on.disable"})
"""Settings of a topic that a broker in ZooKeeper mode refuses."""
_HOW: Final = f"'migrator close-way-back' allows it, and so does {KEEP_WAY_BACK}=false on every controller."
_CLOSES: Final = "would close the way back from the finished migration to ZooKeeper, which does not have it."


def closed(image: MetadataImage) -> str:
    """The time and the reason of the closing of the way back; "" while it is open."""
    return image.configs.get(QUORUM, {}).get(KEY, "")


def close(image: MetadataImage, words: str) -> Decision[None]:
    """Let the controllers accept again features that close the way back.

    :param words: when, and why.
    :raises RefusedError: INVALID_REQUEST unless the migration is finished.
    """
    if image.features.zk_migration_state is not ZkMigrationState.POST_MIGRATION:
        raise RefusedError(ErrorCode.invalid_request, "The migration is not finished: no way back has to be closed.")
    return Decision(None, (ConfigRecord(QUORUM.resource_type, QUORUM.name, KEY, words[:WORDS_MAX]),))


def reopened(image: MetadataImage) -> list[MetadataRecord]:
    """The records that a reopened migration begins with. After its next end, the way back is kept open again; and the
    rollout's lock is in ZooKeeper until then (`rollout_lock`)."""
    held = image.configs.get(QUORUM, {})
    return [ConfigRecord(QUORUM.resource_type, QUORUM.name, key, None) for key in (KEY, LOCK) if key in held]


def check_feature(image: MetadataImage, context: Context, name: str, level: int) -> str:
    """Why a feature must not be upgraded; "" for no reason. No release of this program's controllers has such a
    feature, so closing the way back is not enough."""
    fits = level <= image.features.levels.get(name, 0) or (level <= NEWEST.level and name == FEATURE_NAME)
    if fits or name == KRAFT_VERSION or not _is_kept(image, context):
        return ""
    return (
        f"It {_CLOSES} Only Kafka's own controllers have it: after 'migrator close-way-back', 'migrator handover' "
        "hands the quorum over to them."
    )


def check_config(
    image: MetadataImage, context: Context, resource: ConfigResource, values: Mapping[str, str | None]
) -> None:
    """Check the configuration of a resource. A feature that is set already may stay, and everything may be deleted.

    :param values: the changed keys; None deletes.
    :raises RefusedError: INVALID_CONFIG, as for a value that Kafka does not take.
    """
    if not _is_kept(image, context):
        return
    current = image.configs.get(resource, {})
    new = {key for key, text in values.items() if text is not None and text != current.get(key)}
    what = ""
    if resource.resource_type == ConfigResourceType.CLIENT_METRICS and new:
        what = f"The subscription '{resource.name}' to client metrics"
    elif resource.resource_type == ConfigResourceType.TOPIC and (only := sorted(new & KRAFT_ONLY)):
        what = f"{' and '.join(only)} of topic '{resource.name}'"
    elif resource.resource_type == ConfigResourceType.BROKER and new and is_controller(image, resource.name):
        what = f"A configuration of controller {resource.name}"
    if what:
        raise RefusedError(ErrorCode.invalid_config, f"{what} {_CLOSES} {_HOW}")


def is_controller(image: MetadataImage, name: str) -> bool:
    """Whether the resource with this name is a controller's. Kafka takes ``+3001`` and ``03001`` for 3001."""
    try:
        return int(name) in image.cluster.controllers
    except ValueError:  # the configuration of all brokers, or a name that Kafka does not use
        return False


def _is_kept(image: MetadataImage, context: Context) -> bool:
    finished = image.features.zk_migration_state is ZkMigrationState.POST_MIGRATION
    return finished and context.settings.migrator_keep_way_back and not closed(image)
