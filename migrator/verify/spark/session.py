"""The Spark session: an existing one, that of `spark-submit`, one of Spark Connect, or one started here.

`verify` and `ask` take their session from `spark_session`. A session that was there before is used and not ended; one
started here ends with its context, with its JVM and its temporary files. Workers get this package as an archive, once
for each session.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NoReturn

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, is_remote

from migrator.errors import OperatorError
from migrator.parts.java import find_java

GATEWAY_END_SECONDS = 30
REACH_SECONDS = 20
"""How long a server of Spark Connect may take to accept a connection."""

_LOG4J = """\
rootLogger.level = fatal
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = spark: %p %m%n
"""

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "32",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.driver.memory": "2g",
}
_LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",
    "spark.executor.heartbeatInterval": "2s",
}
"""The settings for a local master only: workers on other machines could not reach loopback. Spark opens ports on
loopback all the same, and generates a secret for them, which it does only with a local master
(``SecurityManager.initializeAuth``)."""
_SAID = re.compile(r"(: )?([\w.$]+(Exception|Error): |\[[A-Z_]+\])")
"""The line of an exception's text that is not part of a stack."""
PYTHON_KEY = "spark.pyspark.python"
PYTHON = "PYSPARK_PYTHON"
NAME = "migrator verify"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"


SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""The variable that `spark-submit` sets: the JVM runs already, with the master and the settings of the submitter."""
REMOTE, CONNECT = "SPARK_REMOTE", "sc://"
LOCAL = "local[*]"


@contextmanager
def spark_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session that ends with its context. A session that this process has already, of Spark itself or of Spark
    Connect, is used and not ended, because a process has only one. It gets this package for its workers, nothing else.

    :param master: ``sc://...`` is a server of Spark Connect. None takes the master of `spark-submit` or SPARK_REMOTE,
        otherwise all cores of this machine.
    :param conf: overrides the defaults and the submitted settings; Java options are added to ours.
    :raises OperatorError: there is no Java 17, or no Spark at ``master``.
    """
    if (session := _existing()) is not None:
        _give_package(session)
        yield session
    elif (address := _remote_address(master)) is not None:
        with _remote(address, conf or {}) as session:
            yield session
    elif is_submitted():
        with _submitted(master, conf or {}) as session:
            yield session
    else:
        with _started(master or LOCAL, conf or {}) as session:
            yield session


def is_submitted() -> bool:
    """Whether `spark-submit` has started this process; it copies this process's stderr to its stdout."""
    return SUBMITTED in os.environ


def starts_java(master: str | None) -> bool:
    """Whether a session starts a JVM here: not if `spark-submit` has done so, and not for a server of Spark Connect."""
    return not is_submitted() and _remote_address(master) is None


def _remote_address(master: str | None) -> str | None:
    """The server of Spark Connect, if one is named."""
    elsewhere = "" if is_submitted() else os.environ.get(REMOTE, "")
    named = master or elsewhere
    return named if named.startswith(CONNECT) else None


def _existing() -> SparkSession | None:
    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - Spark has no public way
        return SparkSession.builder.getOrCreate()
    return SparkSession.getActiveSession()


@contextmanager
def _remote(address: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session on a server of Spark Connect, which outlives the session. Its workers get this package."""
    builder = SparkSession.builder.remote(address)
    for key, text in conf.items():
        builder = builder.config(key, text)
    with _environment({}):
        reach(address)
        session = _connected(builder, _without_token(address))
        try:
            _give_package(session)
            yield session
        finally:
            session.stop()


def reach(address: str) -> None:
    """Connect once, because PySpark would try for minutes.

    :raises OperatorError: the first attempt fails, or this is no address; the token is not shown.
    """
    import grpc  # noqa: PLC0415 - only Spark Connect needs it
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415 - needs gRPC

    states: SimpleQueue[grpc.ChannelConnectivity] = SimpleQueue()
    ends = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE)
    seen = None
    try:
        opened = DefaultChannelBuilder(address).toChannel()
    except ValueError:  # its text may hold the token
        raise OperatorError(
            "this is no address of a server of Spark Connect",
            where=_without_token(address),
            remedy="Write sc://HOST:PORT, with parameters after a slash: sc://HOST:PORT/;KEY=VALUE;KEY=VALUE",
        ) from None
    with suppress(Empty), opened as channel:
        channel.subscribe(states.put, try_to_connect=True)
        while seen not in ends:
            seen = states.get(timeout=REACH_SECONDS)
    if seen is not grpc.ChannelConnectivity.READY:
        raise OperatorError(
            "no server of Spark Connect answers",
            where=_without_token(address),
            remedy=f"Check the address in --master or {REMOTE}, and that the server runs",
        )


def _without_token(address: str) -> str:
    return address.partition(";")[0].removesuffix("/")


@contextmanager
def _submitted(master: str | None, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session in the JVM of `spark-submit`. That JVM outlives this process."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - or the settings that were submitted are not known yet
    submitted = SparkConf()
    master = master or submitted.get("spark.master") or LOCAL
    defaults = {key: text for key, text in _DEFAULTS.items() if not submitted.contains(key)}
    builder = SparkSession.builder.master(master)
    if not submitted.contains("spark.app.name"):
        builder = builder.appName(NAME)
    for key, text in {**defaults, **conf}.items():
        builder = builder.config(key, text)
    local = {PYTHON: sys.executable} if master.startswith("local") and PYTHON not in os.environ else {}
    with _environment(local):
        with _uninterrupted():
            session = _connected(builder, master)
        with _ending(session):
            yield session


@contextmanager
def _started(master: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session in a separate JVM, started quietly."""
    is_local = master.startswith("local")
    programs = {
        "JAVA_HOME": str(find_java().resolve().parents[1]),
        PYTHON: conf.get(PYTHON_KEY, sys.executable),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    with _environment(programs), tempfile.TemporaryDirectory(prefix="migrator-spark-") as scratch:
        log4j = Path(scratch) / "log4j2.properties"
        log4j.write_text(_LOG4J)
        builder = SparkSession.builder.master(master).appName(NAME)
        settings = {
            **_DEFAULTS,
            **(_LOCAL_DEFAULTS if is_local else {}),
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": scratch,
            **conf,
            JAVA_OPTIONS: " ".join(
                (
                    f"-Djava.io.tmpdir={scratch}",
                    f"-Dlog4j2.configurationFile={log4j.as_uri()}",
                    conf.get(JAVA_OPTIONS, ""),
                )
            ).rstrip(),
        }
        for key, text in settings.items():
            builder = builder.config(key, text)
        try:
            with _uninterrupted(), _temporary_files_in(scratch):
                session = _connected(builder, master)
            with _ending(session):
                yield session
        finally:
            with _uninterrupted():
                _end_gateway()
            logging.getLogger("py4j").setLevel(logging.NOTSET)
            logging.getLogger().removeFilter(_is_not_of_py4j)


@contextmanager
def _ending(session: SparkSession) -> Iterator[None]:
    """Give the package to the workers, and end the session with the context."""
    try:
        _give_package(session)
        with _interrupted_in_silence():
            yield
    finally:
        with _uninterrupted():
            session.stop()


def _give_package(session: SparkSession) -> None:
    """Workers on other machines get this package, once for each session. Executors that start later ask the driver for
    the file, so it lies among the files of the session until the session stops."""
    if is_remote():
        with tempfile.TemporaryDirectory(prefix="migrator-spark-") as scratch:
            session.addArtifacts(str(write_archive(Path(scratch))), pyfile=True)
    elif not str(session.sparkContext.master).startswith("local"):
        directory = Path(SparkFiles.getRootDirectory())
        if not (directory / ARCHIVE_NAME).exists():
            session.sparkContext.addPyFile(str(write_archive(directory)))


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """A filter for the root logger, in whose name py4j writes some records."""
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block; otherwise a process that is just being started or ended would be left
    behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


@contextmanager
def _interrupted_in_silence() -> Iterator[None]:
    """When Ctrl-C ends the block, silence py4j until Spark has ended, because it would log a stack for each call. Other
    loggers stay as they are: the process may go on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> NoReturn:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(_is_not_of_py4j)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes that start within the block. Variables that Spark adds are removed with
    them."""
    before = os.environ.copy()
    os.environ.update(changes)
    os.environ.pop(REMOTE, None)  # Spark would prefer it to the named master
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _temporary_files_in(directory: str) -> Iterator[None]:
    """Processes that start within the block, and their children, put temporary files there: a worker that Spark kills
    cannot delete its own."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = directory
    try:
        yield
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


def _connected(builder: SparkSession.Builder, master: str) -> SparkSession:
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        said = [line.lstrip(": ") for line in str(error).splitlines() if _SAID.match(line)]
        what = f"Spark did not start: {said[0] if said else type(error).__name__}"
        raise OperatorError(
            what, where=master, remedy="Check --master and --conf, and that the Spark cluster runs"
        ) from error


def _end_gateway() -> None:
    """End the JVM behind the session; Spark itself would keep it until this process ends."""
    gateway = SparkContext._gateway  # noqa: SLF001 - Spark has no public way
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=GATEWAY_END_SECONDS)
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - the next session starts another


PURE = ("migrator", "kazoo", "kio", "tenacity", "jwt")
"""Packages of pure Python, which go to the workers of a Spark cluster in one archive. Compiled packages can't: the
workers' Python must have them, in the same versions; docs/verify.md lists them."""
ARCHIVE_NAME = "kraft-migrator.zip"


def write_archive(directory: Path) -> Path:
    """Write an archive that Spark's ``addPyFile`` accepts."""
    archive = directory / ARCHIVE_NAME
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name in PURE:
            root = _root(name)
            for source in sorted(root.rglob("*.py")):
                file.write(source, source.relative_to(root.parent))
    return archive


def _root(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise OperatorError(
            f"the Python package {name} is not installed",
            where="the Python environment",
            remedy="Install migrator again, with the extra 'verify'",
        )
    return Path(spec.origin).parent
