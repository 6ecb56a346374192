"""The inputs of a decision beside image and request: the node's settings, the time, randomness, and soft state.

`migrator.node.active` makes one `Context` for each decision of a write, and `migrator.node.node` one for each read. A
decision reads no clock and no random source of its own, so that the same inputs give the same records. For a write,
``index`` belongs to the image of the decision; the soft state (heartbeats, errands) is lost with the leadership.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from migrator.config.types import Secret
from migrator.controller.index import ControllerIndex
from migrator.controller.mutation_quotas import MutationBuckets
from migrator.controller.sessions import Sessions
from migrator.image.model import MetadataImage
from migrator.records.metadata import FeatureRange, ZkMigrationState
from migrator.records.versions import FEATURE_NAME, LATEST_SUPPORTED, MINIMUM_SUPPORTED, MinLevel
from migrator.values import value

if TYPE_CHECKING:
    from random import Random

KRAFT_VERSION = "kraft.version"
SUPPORTED_FEATURES = (
    FeatureRange(FEATURE_NAME, MINIMUM_SUPPORTED, LATEST_SUPPORTED),
    FeatureRange(KRAFT_VERSION, 0, 1),
)
"""The features that this controller announces in ApiVersions and in its registration, and that UpdateFeatures
accepts."""


class ControllerSettings(Protocol):
    """The part of `migrator.config.settings.Settings` that decisions depend on."""

    @property
    def explicit(self) -> Mapping[str, str]:
        """Every key that the property file sets, as text."""

    @property
    def node_id(self) -> int: ...
    @property
    def num_partitions(self) -> int: ...
    @property
    def default_replication_factor(self) -> int: ...
    @property
    def auto_leader_rebalance_enable(self) -> bool: ...
    @property
    def leader_imbalance_check_interval_seconds(self) -> int: ...
    @property
    def metadata_max_idle_interval_ms(self) -> int: ...
    @property
    def inter_broker_listener_name(self) -> str | None: ...
    @property
    def security_inter_broker_protocol(self) -> str: ...
    @property
    def authorizer_class_name(self) -> str: ...
    @property
    def delete_topic_enable(self) -> bool: ...
    @property
    def controller_quota_window_num(self) -> int: ...
    @property
    def controller_quota_window_size_seconds(self) -> int: ...
    @property
    def zookeeper_metadata_migration_enable(self) -> bool: ...
    @property
    def migrator_keep_way_back(self) -> bool: ...
    @property
    def delegation_token_secret_key(self) -> Secret | None: ...
    @property
    def delegation_token_master_key(self) -> Secret | None: ...
    @property
    def delegation_token_max_lifetime_ms(self) -> int: ...
    @property
    def delegation_token_expiry_time_ms(self) -> int: ...
    @property
    def delegation_token_expiry_check_interval_ms(self) -> int: ...


@value
class Context:
    """Everything a decision may depend on besides image and request. ``index`` belongs to the same image.

    ``next_offset`` is the offset that the first record of the decision will get. ``leader_id`` is -1 when unknown.
    ``now_ms`` is monotonic, for time-outs; ``wall_ms`` is milliseconds since 1970, for stored times.
    """

    cluster_id: str
    settings: ControllerSettings
    voters: frozenset[int]
    kraft_version: int
    index: ControllerIndex
    sessions: Sessions
    mutations: MutationBuckets
    random: Random
    now_ms: int
    wall_ms: int
    next_offset: int
    leader_id: int = -1
    transaction_open: bool = False


def supports(image: MetadataImage, feature: MinLevel) -> bool:
    """Whether the cluster's metadata.version has the feature."""
    return image.features.metadata_version >= feature


def zk_brokers_allowed(image: MetadataImage, context: Context) -> bool:
    """Whether ZooKeeper-mode brokers may register. Leader epochs must then rise on every ISR shrink for their sake.

    After the end of the migration this is always False: no controller sends requests to such a broker any more. After a
    reopening it is False until ZooKeeper holds everything again: such a broker takes the configs of its topics from
    ZooKeeper.
    """
    return (
        context.settings.zookeeper_metadata_migration_enable
        and supports(image, MinLevel.ZK_MIGRATION)
        and image.features.zk_migration_state is not ZkMigrationState.POST_MIGRATION
        and image.features.migration_reopening is None
    )
