"""Spark, started quietly on this machine or connected to a cluster, which then gets this package."""

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
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from migrator.errors import OperatorError
from migrator.parts.java import find_java

GATEWAY_END_SECONDS = 30

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
"""Workers elsewhere could not reach that. Spark opens ports on loopback even so: it makes up a secret for them itself,
which only a local master does (``SecurityManager.initializeAuth``)."""
_SAID = re.compile(r"(: )?([\w.$]+(Exception|Error): |\[[A-Z_]+\])")
"""The line of an exception's text that is no part of a stack."""
PYTHON_KEY = "spark.pyspark.python"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"


@contextmanager
def spark_session(master: str = "local[*]", conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session that ends with its context; ``conf`` overrides the defaults, and its Java options add to ours. A
    session that this process has already is used as it is, and left to whoever started it: a process has but one.

    :raises OperatorError: when there is no Java 17, or no Spark at ``master``.
    """
    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - Spark has no public way
        yield SparkSession.builder.getOrCreate()
        return
    is_local = master.startswith("local")
    programs = {
        "JAVA_HOME": str(find_java().resolve().parents[1]),
        "PYSPARK_PYTHON": (conf or {}).get(PYTHON_KEY, sys.executable),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    with _environment(programs), tempfile.TemporaryDirectory(prefix="migrator-spark-") as scratch:
        log4j = Path(scratch) / "log4j2.properties"
        log4j.write_text(_LOG4J)
        builder = SparkSession.builder.master(master).appName("migrator verify")
        settings = {
            **_DEFAULTS,
            **(_LOCAL_DEFAULTS if is_local else {}),
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": scratch,
            **(conf or {}),
            JAVA_OPTIONS: " ".join(
                (
                    f"-Djava.io.tmpdir={scratch}",
                    f"-Dlog4j2.configurationFile={log4j.as_uri()}",
                    (conf or {}).get(JAVA_OPTIONS, ""),
                )
            ).rstrip(),
        }
        for key, text in settings.items():
            builder = builder.config(key, text)
        try:
            with _uninterrupted(), _temporary_files_in(scratch):
                session = _connected(builder, master)
            try:
                if not is_local:
                    session.sparkContext.addPyFile(str(write_archive(Path(scratch))))
                with _interrupted_in_silence():
                    yield session
            finally:
                with _uninterrupted():
                    session.stop()
        finally:
            with _uninterrupted():
                _end_gateway()
            logging.getLogger("py4j").setLevel(logging.NOTSET)
            logging.getLogger().removeFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """For the root logger, in whose name py4j writes some of its records."""
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits for the end of the block, or a process that is just being started or ended would be forgotten."""
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
    """Ctrl-C ends the block; py4j would log each stack that it ends, until Spark has ended. Nobody else is silenced:
    the process may go on."""
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
    """What is started meanwhile finds these variables. Spark adds some of its own, which go with them."""
    before = os.environ.copy()
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _temporary_files_in(directory: str) -> Iterator[None]:
    """What is started meanwhile, and its children, have their temporary files there: a worker that Spark kills cannot
    delete its own."""
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
"""Packages of pure Python, which go to the workers of a Spark cluster in one archive. What is compiled can't: the
workers' Python must have it, in the versions of this one; docs/verify.md lists it."""
ARCHIVE_NAME = "kraft-migrator.zip"


def write_archive(directory: Path) -> Path:
    """An archive that Spark's ``addPyFile`` takes."""
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
