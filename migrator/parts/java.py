"""Java, and the jars that pyspark brings: a ZooKeeper server and the Ivy resolver.

`verify`, `rehearse`, the drill and tests find Java here, and build their commands with it. A missing or old Java is an
`OperatorError` with a remedy, before any process starts. A controller itself needs no Java.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from migrator.errors import OR_THE_IMAGE, OperatorError
from migrator.values import value

ONE_TIER = "-XX:TieredStopAtLevel=1"
"""Uses only the quick compiler, for short processes on few, shared cores. With it Spark compares some 10,000 rows in
two thirds of the processor time; from two million rows on the second tier is better."""
ARCHIVES = "MIGRATOR_JAVA_ARCHIVES"
"""Environment: a directory with archives of class data (JEP 310), see `archive_of`. With one, Java starts in half the
processor time. Java runs the code in an archive, so the directory has to be as trustworthy as the jars."""
_MINIMUM_VERSION = 17
_REMEDY = (
    "Install a Java runtime, for example 'apt-get install openjdk-17-jre-headless', or point JAVA_HOME at one. "
    f"{OR_THE_IMAGE}"
)


@value
class Jvm:
    """Options of a Java process; by default small and quick to start.

    ``heap`` is the -Xmx value. ``flags`` default to one compiler tier and one collector thread, which start fastest
    on few cores; a benchmark passes ``()``.
    """

    heap: str = "256m"
    flags: tuple[str, ...] = ("-XX:+UseSerialGC", ONE_TIER, "-Xshare:auto")


@cache
def find_java() -> Path:
    """The ``java`` of JAVA_HOME, otherwise of the PATH.

    :raises OperatorError: there is none, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise OperatorError("Java 17 or newer is needed and none was found", where=where, remedy=_REMEDY)
    answer = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60, check=False)
    match = re.search(r'version "(\d+)', answer.stdout + answer.stderr)
    if match is None or int(match.group(1)) < _MINIMUM_VERSION:
        seen = match.group(1) if match else "an unknown version"
        raise OperatorError(f"Java 17 or newer is needed, this is {seen}", where=found, remedy=_REMEDY)
    return Path(found)


def pyspark_jars() -> Path:
    """The folder with the jars of the installed pyspark.

    :raises OperatorError: pyspark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise OperatorError(
            "pyspark is not installed, and its jars are needed",
            where="the Python environment",
            remedy=f"Install this program with its extra [verify]; in a clone, run 'make setup'. {OR_THE_IMAGE}",
        )
    return Path(spec.origin).parent / "jars"


def java_command(
    classpath: str, main_class: str, *arguments: str, jvm: Jvm, properties: Mapping[str, str] | None = None
) -> list[str]:
    """The argument list that runs a Java class; ``properties`` become ``-D`` options."""
    defines = [f"-D{key}={text}" for key, text in (properties or {}).items()]
    archive = archive_of(classpath)
    if archive is not None and archive.exists():
        defines.append(f"-XX:SharedArchiveFile={archive}")
    return [str(find_java()), f"-Xmx{jvm.heap}", *jvm.flags, *defines, "-cp", classpath, main_class, *arguments]


def archive_of(classpath: str) -> Path | None:
    """The file in `ARCHIVES` for this classpath, which may not exist; None without `ARCHIVES`. Another Java, or other
    jars, have another file."""
    directory = os.environ.get(ARCHIVES)
    if not directory:
        return None
    files = (find_java().resolve(), *map(Path, classpath.split(os.pathsep)))
    known = ((str(file), file.stat().st_mtime_ns if file.exists() else 0) for file in files)
    return Path(directory) / f"{hashlib.sha256(repr(list(known)).encode()).hexdigest()[:16]}.jsa"


def java_environment() -> dict[str, str]:
    """The environment for `java_command`, with a UTF-8 locale: in others Java loses non-ASCII characters in names of
    files."""
    return {**os.environ, "LC_ALL": "C.UTF-8"}
