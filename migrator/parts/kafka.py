"""Stock Apache Kafka: its tools, and its controllers and brokers as child processes.

The drill, the rehearsal and tests use it. Jars are checked by their hashes before Java runs them. A `StockNode` is a
context: leaving it stops its process, whatever happened. Data stays in its directory, so it can be started again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

from migrator.config.property_edits import file_of
from migrator.errors import OperatorError, require
from migrator.parts.java import Jvm, java_command, java_environment
from migrator.parts.kafka_jars import LIST, cache_directory, fetch_jars, read_hashes
from migrator.parts.processes import ChildProcess, run_to_end

START_SECONDS = 180.0
STOP_SECONDS = 30.0
TOOL_SECONDS = 120.0
SHOWN_CHARS = 300
_STARTED = r"Kafka Server started|\[KafkaServer id=-?\d+\] started"
"""Logged by a KRaft node, and by a broker in ZooKeeper mode, when all listeners serve."""

_LOG4J = """\
log4j.rootLogger={level}, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.org.apache.zookeeper=WARN
"""


def numbers_of(version: str) -> tuple[int, int, int]:
    """The numbers of a release such as ``3.9.1``.

    :raises OperatorError: the text is no name of a release.
    """
    match = re.fullmatch(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})", version)
    if match is None:
        newest = {release.rpartition(".")[0]: release for release in read_hashes()}
        raise OperatorError(
            f"there is no Kafka {' '.join(version.split())[:SHOWN_CHARS]}",
            where="the release of Kafka",
            remedy=f"Name a release with all three numbers, for example {', '.join(newest.values())}",
        )
    return int(match[1]), int(match[2]), int(match[3])


class KafkaRelease:
    """One release of Apache Kafka, e.g. ``KafkaRelease("3.9.1").fetch()``."""

    def __init__(self, version: str, *, hashes: Path | None = None) -> None:
        """
        :param hashes: a file with the SHA-256 of each jar of the release, in place of this program's list.
        :raises OperatorError: the text is no name of a release, or the hashes of its jars are unknown.
        """
        numbers_of(version)
        known = read_hashes(hashes or LIST)
        if version not in known:
            raise OperatorError(
                f"the SHA-256 of the jars of Kafka {version} is not known, so they are neither fetched nor run",
                where="the release of Kafka" if hashes is None else str(hashes),
                remedy=f"Name one of the releases {', '.join(known)}, or give a file with the SHA-256 of each jar to "
                "--kafka-hashes; docs/rehearse.md says how to make this file",
            )
        self.version = version
        self._hashes = known[version]

    @property
    def is_fetched(self) -> bool:
        """Whether its jars are in the cache."""
        return (cache_directory() / self.version).is_dir()

    def fetch(self, tell: Callable[[int], None] = lambda _: None) -> StockKafka:
        """Fetch the jars into the cache, if necessary, and return the release.

        :param tell: called during the download with the number of bytes so far.
        :raises NotFetchedError: the jars are not in the cache and cannot be fetched.
        :raises OperatorError: the jars have other hashes.
        """
        return StockKafka(self.version, fetch_jars(self.version, self._hashes, tell))


class StockKafka:
    """A release whose jars are on this machine."""

    def __init__(self, version: str, jars: Path) -> None:
        self.version = version
        self.jars = jars

    @cached_property
    def classpath(self) -> str:
        return os.pathsep.join(map(str, sorted(self.jars.glob("*.jar"))))

    def command(
        self, main_class: str, *arguments: str, directory: Path, jvm: Jvm, log_level: str = "INFO"
    ) -> list[str]:
        """The argument list that runs one of Kafka's classes; its log4j configuration is written to ``directory``."""
        log4j = directory.absolute() / "log4j.properties"
        log4j.parent.mkdir(parents=True, exist_ok=True)
        log4j.write_text(_LOG4J.format(level=log_level))
        return java_command(
            self.classpath, main_class, *arguments, jvm=jvm, properties={"log4j.configuration": log4j.as_uri()}
        )

    def tool(self, main_class: str, *arguments: str, directory: Path, timeout_seconds: float = TOOL_SECONDS) -> str:
        """Run a command line tool to its end.

        :param directory: scratch folder, for the tool's log configuration.
        :returns: its output, standard error included.
        :raises OperatorError: exit code other than 0, or not ended in time; with the output's tail.
        """
        command = self.command(main_class, *arguments, directory=directory, jvm=Jvm(), log_level="ERROR")
        name = main_class.rsplit(".", 1)[-1]
        return run_to_end(name, command, timeout_seconds=timeout_seconds, env=java_environment())

    def format(self, properties_file: Path, cluster_id: str, *, release_version: str | None = None) -> str:
        """``kafka-storage format``; ``release_version`` e.g. ``3.9-IV0``, None for the release's newest."""
        version = ["--release-version", release_version] if release_version else []
        return self.tool(
            "kafka.tools.StorageTool",
            *("format", "-t", cluster_id, "-c", str(properties_file), *version),
            directory=properties_file.parent,
        )

    def node(
        self,
        name: str,
        directory: Path,
        properties: Mapping[str, str],
        *,
        jvm: Jvm | None = None,
        log_level: str = "INFO",
    ) -> StockNode:
        """A controller or broker, in the mode of the properties; not started yet.

        :param directory: property file, output and (unless the properties say otherwise) ``log.dirs``.
        :param log_level: the line that `wait_until_started` waits for has level INFO; with another level there is no
            such line.
        """
        return StockNode(self, name, directory, properties, jvm or Jvm(heap="512m"), log_level)

    # The tools of everyday use, by their main class; all take --bootstrap-server, and some --bootstrap-controller.

    def topics(self, *arguments: str, directory: Path) -> str:
        """``kafka-topics``."""
        return self.tool("org.apache.kafka.tools.TopicCommand", *arguments, directory=directory)

    def configs(self, *arguments: str, directory: Path) -> str:
        """``kafka-configs``; takes ``--zookeeper`` too."""
        return self.tool("kafka.admin.ConfigCommand", *arguments, directory=directory)

    def acls(self, *arguments: str, directory: Path) -> str:
        """``kafka-acls``; takes ``--authorizer-properties zookeeper.connect=...`` too."""
        return self.tool("kafka.admin.AclCommand", *arguments, directory=directory)


class StockNode:
    """One stock controller or broker; leaving its context stops it. It can be started again on the same data."""

    def __init__(
        self,
        kafka: StockKafka,
        name: str,
        directory: Path,
        properties: Mapping[str, str],
        jvm: Jvm,
        log_level: str = "INFO",
    ) -> None:
        self.kafka = kafka
        self.name = name
        self.directory = directory
        self.properties = {"log.dirs": str(directory / "data"), **properties}
        self._jvm = jvm
        self._log_level = log_level
        self._process: ChildProcess | None = None

    @property
    def properties_file(self) -> Path:
        return self.directory / "node.properties"

    @property
    def process(self) -> ChildProcess:
        require(self._process is not None, f"{self.name} was not started")
        assert self._process is not None  # noqa: S101 (for the type checker; required above)
        return self._process

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.exit_code() is None

    def write_properties(self) -> Path:
        """Write the property file anew from ``properties``."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties_file.write_text(file_of(self.properties))
        return self.properties_file

    def format(self, cluster_id: str, *, release_version: str | None = None) -> None:
        """Format its directories, as a KRaft node needs before its first start."""
        self.kafka.format(self.write_properties(), cluster_id, release_version=release_version)

    def launch(self) -> None:
        """Start the process without waiting: a quorum's first controller only comes up with the others."""
        self.write_properties()
        self.run()

    def run(self) -> None:
        """Like `launch`, with the property file as it is; another program may have written it."""
        command = self.kafka.command(
            "kafka.Kafka",
            str(self.properties_file),
            directory=self.directory,
            jvm=self._jvm,
            log_level=self._log_level,
        )
        self._process = ChildProcess(self.name, command, output=self.directory / "node.log", env=java_environment())

    def wait_until_started(self, *, timeout_seconds: float = START_SECONDS) -> None:
        """Wait until it logs that it serves.

        :raises OperatorError: the process ends first, or the time is over; the error has the end of its output.
        """
        self.process.wait_for_output(_STARTED, timeout_seconds=timeout_seconds)

    def start(self) -> None:
        """Start it and wait until it serves; errors as `wait_until_started`, after which nothing runs."""
        try:
            self.launch()
            self.wait_until_started()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when it takes longer than `STOP_SECONDS`."""
        if self._process is not None:
            self._process.stop(grace_seconds=STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()

    def restart(self, changes: Mapping[str, str | None] | None = None) -> None:
        """Stop it and start it again with changed properties; a value None removes the key."""
        self.stop()
        for key, text in (changes or {}).items():
            if text is None:
                self.properties.pop(key, None)
            else:
                self.properties[key] = text
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_together(nodes: Sequence[StockNode]) -> None:
    """Start nodes that need each other to come up; on failure none of them runs."""
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_until_started()
    except BaseException:
        for node in nodes:
            node.kill()
        raise
