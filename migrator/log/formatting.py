"""Formats directories for one node of one cluster, and opens formatted directories.

`migrator format`, hand-over and the rehearsal format with it, and a controller opens its directory with it.
``meta.properties`` is written last, so a directory whose formatting was interrupted counts as not formatted. A
directory of another node or cluster is refused, never overwritten. A directory is locked while it is formatted or open.
Source: ``kafka.tools.StorageTool``, ``org.apache.kafka.metadata.storage.Formatter``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

from migrator.errors import OperatorError
from migrator.log import bootstrap, meta_properties
from migrator.log.errors import storage_errors
from migrator.log.files import make_directory, remove_file, sync_directory
from migrator.log.lock import DirectoryLock
from migrator.log.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.snapshots import FORMATTED, SnapshotWriter, snapshot_name
from migrator.machine import machine
from migrator.raft.voter_set import DYNAMIC_VERSION, Membership, VoterSet
from migrator.records.metadata import UserScramCredentialRecord
from migrator.records.uuid import Uuid, random_uuid
from migrator.records.versions import LATEST_SUPPORTED, MINIMUM_BOOTSTRAP, MetadataVersion, MinLevel, version_at
from migrator.values import value

DYNAMIC_MINIMUM = 21
"""The level of metadata.version 3.9-IV0, the first one that allows voters in the log (kraft.version 1)."""


@value
class FormatPlan:
    """The order to format a directory.

    :ivar directories: every log directory of the node; the metadata directory may be one of them.
    :ivar cluster_id_of: where the cluster id comes from, for messages.
    :ivar ignore_formatted: leave directories as they are that already belong to this node.
    :ivar voters: the first voters of a quorum whose log names them (kraft.version 1); None for voters of the
        configuration, and for a node that joins.
    :ivar credentials: SCRAM credentials that are valid from the first start on.
    :ivar version_of: where the version comes from, for messages.
    :ivar migrates: whether a migration begins with this quorum. The version then has to equal the brokers'
        ``inter.broker.protocol.version``.
    """

    directories: tuple[Path, ...]
    metadata_directory: Path
    cluster_id: str
    node_id: int
    version: MetadataVersion
    ignore_formatted: bool = False
    voters: VoterSet | None = None
    credentials: tuple[UserScramCredentialRecord, ...] = ()
    cluster_id_of: str = "--cluster-id"
    version_of: str = "--release-version"
    migrates: bool = False


def format_directories(plan: FormatPlan, *, random: Random, now_ms: int) -> list[Path]:
    """Format the directories that are not formatted yet, and return these in order.

    ``meta.properties`` is written last, so a directory whose formatting was interrupted counts as not formatted.

    :param random: source of directory ids; `random.SystemRandom` outside tests.
    :raises OperatorError: a directory belongs to a node already, is in use, or holds a log without
        ``meta.properties``; or the cluster id or the version is not possible; or the disk fails.
    """
    _check_cluster_id(plan.cluster_id)
    _check_version(plan.version)
    if plan.voters is not None:
        _check_dynamic(plan)
    if plan.credentials:
        _check_scram(plan.version)
    # The metadata directory comes last: a starting controller checks only this one.
    others = [directory for directory in dict.fromkeys(plan.directories) if directory != plan.metadata_directory]
    directories = [*others, plan.metadata_directory]
    with ExitStack() as locks:
        for directory in directories:
            make_directory(directory)
            locks.enter_context(DirectoryLock(directory))
        waiting = [directory for directory in directories if _needs_format(plan, directory)]
        for directory in waiting:
            if directory == plan.metadata_directory:
                first = [*bootstrap.bootstrap_records(plan.version), *plan.credentials]
                bootstrap.write_bootstrap(directory, first, now_ms=now_ms)
                _remove_voters(directory)
                if plan.voters is not None:
                    _write_voters(directory, plan.voters, now_ms=now_ms)
            directory_id = _listed_id(plan, directory) or random_uuid(random)
            write_meta_properties(directory, MetaProperties(plan.cluster_id, plan.node_id, directory_id))
    return waiting


def _listed_id(plan: FormatPlan, directory: Path) -> Uuid | None:
    """The directory id with which the first voters name this node's metadata directory."""
    if plan.voters is None or directory != plan.metadata_directory:
        return None
    voter = plan.voters.find(plan.node_id)
    return None if voter is None else voter.voter_directory_id


def _write_voters(directory: Path, voters: VoterSet, *, now_ms: int) -> None:
    """Write the snapshot of offset 0, which names the voters (``Formatter.writeDynamicQuorumSnapshot``)."""
    folder = directory / DIRECTORY_NAME
    make_directory(folder)
    writer = SnapshotWriter(
        folder,
        FORMATTED,
        last_contained_log_timestamp_ms=now_ms,
        now_ms=now_ms,
        membership=Membership(DYNAMIC_VERSION, voters),
    )
    with writer:
        writer.freeze(now_ms=now_ms)


def _remove_voters(directory: Path) -> None:
    """Remove the voters that an interrupted formatting has written: this one may be for another quorum."""
    folder = directory / DIRECTORY_NAME
    if machine().exists(folder):
        with storage_errors("cannot remove", folder):
            for path in machine().names(folder):
                remove_file(path)
            machine().remove_directory(folder)  # an empty directory would look like a lost log
        sync_directory(directory)


def _holds_log(directory: Path) -> bool:
    """Whether the directory holds more than an interrupted formatting leaves behind."""
    folder, formatted = directory / DIRECTORY_NAME, snapshot_name(FORMATTED)
    if not machine().exists(folder):
        return False
    names = [path.name for path in machine().names(folder)]
    return not names or not all(name.startswith(formatted) for name in names)


def _needs_format(plan: FormatPlan, directory: Path) -> bool:
    found = read_meta_properties(directory)
    if found is None:
        if _holds_log(directory):
            raise OperatorError(
                f"there is a metadata log but no {meta_properties.FILE_NAME}",
                where=str(directory),
                remedy="Restore that file from a copy; or, to start anew, empty the directory first",
            )
        return True
    same_node = (found.cluster_id, found.node_id) == (plan.cluster_id, plan.node_id)
    if same_node and plan.ignore_formatted:
        return False
    other = [f"{plan.cluster_id_of} says cluster {plan.cluster_id}"] * (found.cluster_id != plan.cluster_id)
    other += [f"the property file says node {plan.node_id}"] * (found.node_id != plan.node_id)
    raise OperatorError(
        "; ".join(
            [f"the directory is already formatted, for node {found.node_id} of cluster {found.cluster_id}", *other]
        ),
        where=str(directory / meta_properties.FILE_NAME),
        remedy="Give --ignore-formatted to leave the directory as it is"
        if same_node
        else "Choose another directory, or empty this one first",
    )


def _check_cluster_id(cluster_id: str) -> None:
    """Brokers compare the cluster id as a text, and the znode may hold any text (KIP-78)."""
    if not cluster_id:
        raise OperatorError(
            "the cluster id is empty",
            where="--cluster-id",
            remedy="For a migration take the brokers' own (znode /cluster/id, or cluster.id in their meta.properties)",
        )


def _check_version(version: MetadataVersion) -> None:
    if not MINIMUM_BOOTSTRAP <= version.level <= LATEST_SUPPORTED:
        low, high = version_at(MINIMUM_BOOTSTRAP).name, version_at(LATEST_SUPPORTED).name
        raise OperatorError(
            f"a new quorum cannot use metadata.version {version.name}",
            where="--release-version",
            remedy=f"Choose one from {low} to {high}; a migration needs at least 3.6-IV1",
        )


def _check_dynamic(plan: FormatPlan) -> None:
    if plan.version.level >= DYNAMIC_MINIMUM:
        return
    least = version_at(DYNAMIC_MINIMUM)
    first = "Choose a later one"
    if plan.migrates:
        first = f"Set inter.broker.protocol.version={least.release} on all brokers first, and restart them"
    raise OperatorError(
        f"voters in the log (kraft.version 1) need metadata.version {least.name}, not {plan.version.name}",
        where=plan.version_of,
        remedy=f"{first}; or name the voters in controller.quorum.voters",
    )


def _check_scram(version: MetadataVersion) -> None:
    if version.level < MinLevel.SCRAM:
        raise OperatorError(
            f"SCRAM credentials need metadata.version {version_at(MinLevel.SCRAM).name}, not {version.name}",
            where="--add-scram",
            remedy="Choose a later --release-version; or add the credentials later with kafka-configs",
        )


def open_formatted(
    directory: Path, node_id: int, *, random: Random, cluster_ids: Sequence[str] = ()
) -> tuple[MetaProperties, DirectoryLock]:
    """Open a formatted directory: return its identity and its lock. The caller closes the lock when it ends.

    A directory without an id gets one, as in Kafka.

    :param cluster_ids: when given, the cluster ids that are allowed.
    :raises OperatorError: the directory is not formatted, in use, or belongs to another node or cluster.
    """
    found = read_meta_properties(directory) if machine().is_directory(directory) else None
    if found is None:
        raise OperatorError(
            "the metadata directory is not formatted",
            where=str(directory),
            remedy="Run: migrator format -c FILE -t CLUSTER_ID",
        )
    if found.node_id != node_id or (cluster_ids and found.cluster_id not in cluster_ids):
        raise OperatorError(
            f"the directory belongs to node {found.node_id} of cluster {found.cluster_id}",
            where=str(directory / meta_properties.FILE_NAME),
            remedy=f"Correct node.id or metadata.log.dir (log.dirs). The property file says node {node_id}",
        )
    lock = DirectoryLock(directory)
    if found.directory_id is None:
        found = MetaProperties(found.cluster_id, found.node_id, random_uuid(random))
        write_meta_properties(directory, found)
    return found, lock
