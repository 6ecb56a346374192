"""The files of one voter: writes the stock property file, looks into the metadata directory, formats an empty one.

`execute` calls it on the host of the voter. Our own property file is never changed, and a file that this program did
not make is kept under another name. A directory is formatted only while it is empty. The stock file has the permissions
of ours.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import SystemRandom

from migrator.clock import wall_ms
from migrator.config.kafkas_controller import refused_by_kafka
from migrator.config.keys import SYNONYMS, TOKEN_SECRET
from migrator.config.properties import decoded, encoded, parse_properties, read_decoded
from migrator.config.property_edits import without_keys
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.handover.plan import MetadataDirectory
from migrator.log.empty_mark import EmptyMark, EmptyReason
from migrator.log.files import write_durably
from migrator.log.formatting import FormatPlan, format_directories
from migrator.log.lock import is_in_use
from migrator.log.meta_properties import read_meta_properties
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.migration.machine.states import PublicState
from migrator.records.versions import FEATURE_NAME, parse_version
from migrator.rollout.target_release import TargetRelease
from migrator.rpc.operator_client import OperatorClient
from migrator.verify.kraft.files import EmptyLogError, read_image

STATUS_SECONDS = 2.0
OLD_SECRET = SYNONYMS[TOKEN_SECRET]
MADE_BY = "# Made by 'migrator handover' "
HEADER = MADE_BY + "from {name} for Apache Kafka {version}\n"
KEPT_SUFFIX = ".before-handover"


class StockFile:
    """The stock property file, next to ours: a copy without the keys that only this program, or only ZooKeeper, needs.

    :param ours: our property file.
    :param target: the release of Kafka that is to read it.
    """

    def __init__(self, ours: Path, target: TargetRelease) -> None:
        self.ours = ours
        self.path = ours.with_name(f"{ours.stem}.stock{ours.suffix}")
        self._target = target

    @property
    def is_written(self) -> bool:
        """Whether the file has exactly the text that `write` would write now. A change of our file makes this False."""
        return self.path.exists() and read_decoded(self.path) == self._text()

    @property
    def dropped(self) -> list[str]:
        """The keys of our file that it leaves out."""
        return [key for key in parse_properties(read_decoded(self.ours)) if self._target.drops(key)]

    def check(self) -> None:
        """:raises OperatorError: the operator has to change a key first."""
        keys = parse_properties(read_decoded(self.ours))
        if self._target.gone and OLD_SECRET in keys and TOKEN_SECRET not in keys:
            raise OperatorError(
                f"Kafka {self._target.version} does not know that key any more",
                where=f"{self.ours}: {OLD_SECRET}",
                remedy=f"Rename it to {TOKEN_SECRET}, which Kafka 3.9 and this program know too",
            )
        for key, what, remedy in refused_by_kafka(keys):
            raise OperatorError(f"Kafka does not start: {what}", where=f"{self.ours}: {key}", remedy=remedy)

    def write(self) -> None:
        """Write the file, with the permissions of ours, because it may hold secrets. A file that this program has not
        made is first copied to a name with `KEPT_SUFFIX`.

        :raises OperatorError: the disk refuses.
        """
        kept = self.path.with_name(self.path.name + KEPT_SUFFIX)
        if self.path.exists() and not read_decoded(self.path).startswith(MADE_BY) and not kept.exists():
            write_durably(kept, self.path.read_bytes(), like=self.path)
        write_durably(self.path, encoded(self._text()), like=self.ours)

    def _text(self) -> str:
        header = HEADER.format(name=self.ours.name, version=self._target.version)
        return decoded(os.fsencode(header)) + without_keys(read_decoded(self.ours), self._target.drops)


async def look_into(settings: Settings, known: MetadataDirectory | None) -> MetadataDirectory:
    """The contents of a node's metadata directory; while a process uses the directory, the answers of that process.

    :param known: the result of an earlier call. A log with a finished migration is not read again.
    :raises OperatorError: the directory belongs to another node, or is damaged.
    """
    directory = settings.metadata_directory
    if not is_in_use(directory):
        if known is not None and known.holds_log and known.finished:
            return known
        try:
            found = await _at_rest(settings)
        except OperatorError:
            if not is_in_use(directory):
                raise
        else:
            if not is_in_use(directory):
                return found
    # A process that has started during the look may have changed the files while they were read.
    return MetadataDirectory(in_use=True, finished=await _says_finished(directory))


async def _at_rest(settings: Settings) -> MetadataDirectory:
    """The contents of the directory while no process uses it; errors as in `look_into`."""
    directory = settings.metadata_directory
    identity = read_meta_properties(directory) if directory.is_dir() else None
    if identity is None:
        return MetadataDirectory()
    if identity.node_id != settings.node_id:
        raise OperatorError(
            f"the directory belongs to node {identity.node_id}, and the property file is of node {settings.node_id}",
            where=str(directory),
            remedy="Correct node.id or metadata.log.dir (log.dirs)",
        )
    if not (directory / DIRECTORY_NAME).is_dir():
        return MetadataDirectory(formatted=True)
    if EmptyMark(directory / DIRECTORY_NAME).read() is EmptyReason.UNKNOWN:
        # The log is only a part, but a stock controller would vote with it: so it counts as no log.
        return MetadataDirectory(formatted=True)
    try:
        image = await asyncio.to_thread(read_image, directory)
    except EmptyLogError:
        return MetadataDirectory(formatted=True)
    return MetadataDirectory(
        formatted=True,
        holds_log=True,
        finished=not image.features.zk_migration_state.is_under_way,
        level=image.features.levels.get(FEATURE_NAME, 0),
    )


async def _says_finished(directory: Path) -> bool | None:
    """True when our process in this directory says that the migration is finished, which it can do without a leader.
    None when it says otherwise, or does not answer."""
    try:
        async with OperatorClient.on_socket(directory) as client:
            status = await client.status(STATUS_SECONDS)
    except OperatorError:
        return None
    return status.migration.public_state == PublicState.FINISHED.label or None


def format_empty(settings: Settings, cluster_id: str, version: str) -> None:
    """Give an empty directory the node's identity, as ``migrator format`` does.

    :raises OperatorError: the directory is not empty, or the disk refuses.
    """
    plan = FormatPlan(
        directories=settings.log_directories,
        metadata_directory=settings.metadata_directory,
        cluster_id=cluster_id,
        node_id=settings.node_id,
        version=parse_version(version),
        ignore_formatted=True,
    )
    format_directories(plan, random=SystemRandom(), now_ms=wall_ms())
