"""The obstacles to reopening a finished migration: metadata in the log that ZooKeeper mode does not have, and nodes
that are not ready. Pure.

The rules follow what Kafka 3.9 supports in ZooKeeper mode: no feature but metadata.version (`ZkMetadataCache`), configs
of topics and brokers only (`ZkConfigMigrationClient`), no `remote.log.*.disable` (`LogConfig`), names of znodes. Kafka
4 has no ZooKeeper mode; its brokers do not know the lowest metadata.version of Kafka 3 (`MetadataVersion`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from migrator.config.kafkas_broker import RESERVED
from migrator.config.keys import FLAG, KEEP_WAY_BACK
from migrator.config.reading import number_of
from migrator.controller.way_back import KRAFT_ONLY, NEWEST, closed, is_controller
from migrator.image.model import MetadataImage
from migrator.migration.machine.guards import Ownership, Standing, ownership
from migrator.migration.machine.states import PublicState
from migrator.observe.printable import number_ranges
from migrator.observe.status import Gate
from migrator.records.metadata import ConfigResourceType
from migrator.records.versions import FEATURE_NAME, MINIMUM_SUPPORTED
from migrator.values import value
from migrator.zookeeper.ops import FORBIDDEN_REMEDY
from migrator.zookeeper.znodes import paths

EXAMPLES = 5


@value
class ReopenFacts:
    """The facts that a leader knows. ``cluster_id``: of this quorum. ``migrating``: by voter, whether its migration
    flag is on; None for no answer. ``stock``: the voters that are Kafka's own. ``outdated``: the voters of a release
    that does not know a reopened migration. ``standing`` and ``running`` (who has a znode in ``/brokers/ids``): None
    when ZooKeeper could not be read, for ``away``. ``too_large``: paths of the znodes that ZooKeeper would refuse.
    ``forbidden``: the rights in ZooKeeper that our identity lacks, in sentences."""

    cluster_id: str
    image: MetadataImage
    public: PublicState
    migrating: Mapping[int, bool | None]
    stock: frozenset[int]
    standing: Standing | None
    running: frozenset[int] = frozenset()
    outdated: frozenset[int] = frozenset()
    too_large: frozenset[str] = frozenset()
    forbidden: tuple[str, ...] = ()
    away: str = ""


def reopen_gates(facts: ReopenFacts) -> tuple[Gate, ...]:
    """All gates that have to be open before a finished migration is reopened, and notes for the operator."""
    return (
        Gate(
            "state",
            facts.public is PublicState.FINISHED,
            f"the migration is in {facts.public.label}",
            "Only a finished migration can be reopened. From DualWrite, 'migrator gates rollback' says what is left",
        ),
        _controllers(facts),
        _zookeeper(facts),
        _gate(
            "permissions",
            _counted(list(facts.forbidden), "operations that ZooKeeper refuses"),
            "our identity may create, change and delete what a migration does",
            FORBIDDEN_REMEDY,
        ),
        _kept(facts.image),
        *gates_of_log(facts.image),
        _gate(
            "sizes",
            _counted(sorted(facts.too_large), "znodes larger than ZooKeeper takes"),
            "every znode is small enough for migrator.zookeeper.jute.maxbuffer",
            "Raise jute.maxbuffer on the ZooKeeper servers and brokers, and set migrator.zookeeper.jute.maxbuffer "
            "of the controllers to the same value; or make these topics, configs or access control lists smaller",
        ),
        Gate(
            "groups",
            open=True,
            what="no controller knows the types of groups. Consumers of groups of the types 'consumer' and 'share' "
            "stop when brokers run in ZooKeeper mode; committed offsets stay. Look for them with "
            "'kafka-consumer-groups.sh --list --type consumer'",
        ),
        Gate(
            "copies",
            open=True,
            what="a broker that starts in migration mode deletes its __cluster_metadata-0, the last copy of the "
            "metadata if all controllers are lost. A rollout copies it beside the directory in log.dirs before; in a "
            "pod this is outside of the volume and may vanish with the pod. Copy it to a safe place yourself, outside "
            "of log.dirs",
        ),
    )


def gates_of_log(image: MetadataImage) -> tuple[Gate, ...]:
    """The gates that depend on the log alone."""
    return (_features(image), *_contents(image), _brokers(image))


def _gate(name: str, found: Iterable[str], fine: str, remedy: str) -> Gate:
    listed = tuple(found)
    return Gate(name, not listed, "; ".join(listed) or fine, remedy)


def _controllers(facts: ReopenFacts) -> Gate:
    off = [voter for voter, on in facts.migrating.items() if on is False and voter not in facts.stock]
    silent = [voter for voter, on in facts.migrating.items() if on is None]
    found = []
    if facts.stock:
        found.append(f"{number_ranges('controller', facts.stock)} of the voters: Kafka's own, which would end it again")
    if facts.outdated:
        names = number_ranges("controller", facts.outdated)
        found.append(f"{names}: a release of this program that does not know a reopened migration")
    if off:
        found.append(f"the migration is off on {number_ranges('controller', off)}")
    if silent:
        found.append(f"no answer from {number_ranges('controller', silent)}")
    return _gate(
        "controllers",
        found,
        "every voter is of this program, and has the migration on",
        f"Run one release of this program on every controller, with {FLAG}=true and zookeeper.connect. Restart one "
        "controller after the other. Where Kafka's own controllers vote, hand the quorum over to this program first",
    )


def _zookeeper(facts: ReopenFacts) -> Gate:
    standing = facts.standing
    unproved = standing is not None and ownership(standing) is Ownership.UNPROVED
    note = (
        f". Nothing proves any more that {paths.MIGRATION} is of this quorum: the reopened migration waits until "
        "'migrator force reclaim' says so"
    )
    return _gate(
        "zookeeper",
        _of_zookeeper(facts),
        "ZooKeeper is of this cluster, and nobody uses it" + (note if unproved else ""),
        "Correct zookeeper.connect if it leads to another cluster. Stop every broker that was started in ZooKeeper "
        "mode. If ZooKeeper has lost its content, 'migrator reopen "
        "--into-empty-zookeeper' writes /cluster/id and /controller_epoch first",
    )


def _of_zookeeper(facts: ReopenFacts) -> Iterator[str]:
    standing = facts.standing
    if standing is None:
        yield f"ZooKeeper cannot be read: {facts.away}"
        return
    if standing.fault is not None:
        yield f"{standing.fault.where}: {standing.fault.what}"
        return
    if standing.cluster_id != facts.cluster_id:
        yield f"{paths.CLUSTER_ID} is {standing.cluster_id}, and this quorum is of cluster {facts.cluster_id}"
    if standing.view.epoch is None:
        yield f"{paths.CONTROLLER_EPOCH} is missing"
    holder = standing.view.controller
    if holder is not None and holder.is_broker:
        yield f"{paths.CONTROLLER} is held by broker {holder.broker_id}, in ZooKeeper mode"
    if facts.running:
        yield f"in ZooKeeper mode: {number_ranges('broker', facts.running)}"
    if ownership(standing) is Ownership.FOREIGN:
        yield f"{paths.MIGRATION} is of another quorum"


def _kept(image: MetadataImage) -> Gate:
    """The note about a closed way back. This gate is always open, because only the records in the log count."""
    words = closed(image)
    what = f"the way back was closed on purpose ({words}): it stays open as long as nothing was used that closes it"
    kept = f"with {KEEP_WAY_BACK}=true, this program's controllers refuse what would close the way back"
    return Gate("kept", open=True, what=what if words else kept)


def _features(image: MetadataImage) -> Gate:
    found = []
    level = image.features.metadata_version
    if level > NEWEST.level:
        found.append(f"metadata.version is at level {level}, brokers in ZooKeeper mode know at most {NEWEST.name}")
    others = sorted((name, at) for name, at in image.features.levels.items() if name != FEATURE_NAME and at > 0)
    found += [f"{name} is at level {at}, ZooKeeper mode knows no such feature" for name, at in others]
    return _gate(
        "features",
        found,
        f"metadata.version is at level {level}, and no other feature is used",
        "Take the feature back with 'kafka-features downgrade', where Kafka allows it. What it was used for is lost",
    )


def _contents(image: MetadataImage) -> Iterator[Gate]:
    configs = image.configs
    known = (ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.UNKNOWN)
    others = sorted(each.name for each in configs if each.resource_type not in known)
    of_controllers = [
        each.name
        for each in configs
        if each.resource_type == ConfigResourceType.BROKER and is_controller(image, each.name)
    ]
    disabled = sorted(
        each.name
        for each, keys in configs.items()
        if each.resource_type == ConfigResourceType.TOPIC and not KRAFT_ONLY.isdisjoint(keys)
    )
    yield _gate(
        "configs",
        (
            *_counted(others, "configs of groups and of client metrics, which ZooKeeper mode does not have"),
            *_counted(sorted(of_controllers), "configs of controllers, which would become those of brokers"),
            *_counted(disabled, f"topics with {' or '.join(sorted(KRAFT_ONLY))}, which ZooKeeper mode does not allow"),
        ),
        "every config is one that ZooKeeper mode has",
        "Delete these configs with 'kafka-configs --alter --delete-config'",
    )
    patterns = {acl.resource_name for acl in image.acls.values() if not paths.is_legal_name(acl.resource_name)}
    tokens = {name for name in image.tokens if not paths.is_legal_name(name)}
    yield _gate(
        "names",
        (
            *_counted(sorted(patterns), "ACLs of resources whose name cannot be that of a znode"),
            *_counted(sorted(tokens), "delegation tokens whose id cannot be the name of a znode"),
        ),
        "every name can be that of a znode",
        "Delete them, or give them other names: they are not written to ZooKeeper",
    )


def _counted(names: list[str], what: str) -> Iterator[str]:
    if names:
        more = ", ..." if len(names) > EXAMPLES else ""
        yield f"{what}: {len(names)} ({', '.join(names[:EXAMPLES])}{more})"


def _brokers(image: MetadataImage) -> Gate:
    """The gates of the brokers, as far as the image shows them; the remedy says what the brokers' files need."""
    most = number_of({}, RESERVED) or 0  # Kafka's default
    high = sorted(number for number in image.cluster.brokers if number > most)
    level = image.features.metadata_version
    ranges = {
        number: next((each for each in broker.features if each.name == FEATURE_NAME), None)
        for number, broker in sorted(image.cluster.brokers.items())
    }
    old = [number for number, known in ranges.items() if known is None or known.max_version < level]
    new = [number for number, known in ranges.items() if known is not None and known.min_version > MINIMUM_SUPPORTED]
    ahead = [number for number, known in ranges.items() if known is not None and known.max_version > level]
    notes = [f"{number_ranges('broker', high)}: set broker.id.generation.enable=false"] if high else []
    notes += [f"{number_ranges('broker', ahead)}: the default of the release is another level"] if ahead else []
    found = [f"{number_ranges('broker', old)}: no release that has metadata.version {level}"] if old else []
    found += [f"{number_ranges('broker', new)}: of Kafka 4, which has no ZooKeeper mode"] if new else []
    return _gate(
        "brokers",
        found,
        "; ".join(["every broker knows the metadata.version; in ZooKeeper mode its file says so, too", *notes]),
        "Run a release of Kafka 3 that knows the metadata.version, and set inter.broker.protocol.version to the "
        "metadata.version of the cluster in the file of every broker",
    )
