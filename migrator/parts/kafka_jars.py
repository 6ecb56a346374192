"""Fetches the jars of an Apache Kafka release once, with the resolver (Apache Ivy) that ships in pyspark.

``python -m migrator.parts.kafka_jars RELEASE...`` fetches releases anew, without the cache, and prints the SHA-256 of
each jar as `kafka_hashes.LIST` has them.

SHA-256 of each jar of each Kafka release that this program fetches and runs, and the comparison with a folder.

The list is `kafka_jars.sha256` next to this file, in the format of ``sha256sum``: a digest, two spaces, and
``RELEASE/FILE``. CONTRIBUTING.md says how to add a release.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from migrator.errors import ExitCode, OperatorError
from migrator.parts.java import find_java, pyspark_jars
from migrator.parts.processes import ChildProcess

LIST = Path(__file__).with_name("kafka_jars.sha256")
SHOWN = 3
RELEASE = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}")
_LINE = re.compile(rf"(?P<digest>[0-9a-f]{{64}}) [ *](?P<release>{RELEASE.pattern})/(?P<file>[^/\s]+\.jar)")


def read_hashes(file: Path = LIST) -> dict[str, dict[str, str]]:
    """Digests by file, by release; the releases in the order of the file.

    :raises OperatorError: the file cannot be read, is empty, or has a line in another format.
    """
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeError) as error:
        raise _unusable(file, f"the file of hashes cannot be read: {error}") from error
    found: dict[str, dict[str, str]] = {}
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise _unusable(file, f"line {number} is no SHA-256 of a jar")
        known = found.setdefault(match["release"], {}).setdefault(match["file"], match["digest"])
        if known != match["digest"]:
            raise _unusable(file, f"line {number} gives {match['file']} a second SHA-256")
    if not found:
        raise _unusable(
            file, "the file of hashes has no line with a jar: the command that was to write it may have failed"
        )
    return found


def hashes_of(folder: Path) -> dict[str, str]:
    found = {}
    for jar in sorted(folder.glob("*.jar")):
        with jar.open("rb") as content:
            found[jar.name] = hashlib.file_digest(content, "sha256").hexdigest()
    return found


def refuse_other_jars(version: str, folder: Path, expected: Mapping[str, str], *, where: str, remedy: str) -> None:
    """Compare the jars of a folder with those of the release. Every file is read each time: it takes 0.1 s.

    :raises OperatorError: a jar differs, is missing, or does not belong to the release.
    """
    found = hashes_of(folder)
    differences = list(_differences(found, expected))
    if differences:
        shown = "; ".join(differences[:SHOWN])
        more = f"; and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
        raise OperatorError(
            f"these are not the jars of Apache Kafka {version}, and nothing of them was run: {shown}{more}",
            where=where,
            remedy=remedy,
        )


def _differences(found: Mapping[str, str], expected: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(found.keys() | expected.keys()):
        if name not in found:
            yield f"{name} is missing"
        elif name not in expected:
            yield f"{name} is not a file of this release"
        elif found[name] != expected[name]:
            yield f"{name} has the SHA-256 {found[name]}, expected was {expected[name]}"


def _unusable(file: Path, what: str) -> OperatorError:
    return OperatorError(
        what,
        where=str(file),
        remedy="Each line is a SHA-256, two spaces and RELEASE/FILE.jar, as 'sha256sum RELEASE/*.jar' prints it",
    )


FETCH_SECONDS = 900.0
CONNECT_TIMEOUT_MS = 5_000
READ_TIMEOUT_MS = 30_000
TELL_SECONDS = 1.0
_OFFLINE_SIGNS = ("Server access error", "SERVER ERRORS", "UnknownHostException")
END_SECONDS = 10.0
SHOWN_LINES, SHOWN_CHARS = 3, 300

_IVY_MODULE = """\
<ivy-module version="2.0">
  <info organisation="migrator" module="stock-kafka"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}" conf="default"/>
    <dependency org="org.apache.kafka" name="kafka-shell" rev="{version}" conf="default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{version}" conf="default"/>
    <dependency org="org.slf4j" name="slf4j-reload4j" rev="1.7.36" conf="default"/>
    {log4j_2}
    <exclude org="org.apache.kafka" module="connect-runtime"/>
  </dependencies>
</ivy-module>
"""
_WITHOUT_LOG4J_2 = '<exclude org="org.apache.logging.log4j"/>'
_WITH_LOG4J_2 = '<dependency org="org.apache.logging.log4j" name="log4j-core" rev="2.24.3" conf="default"/>'
"""Kafka 4 needs it to start, although everything is logged through slf4j, as before."""


def cache_directory() -> Path:
    """The directory of fetched releases: below XDG_CACHE_HOME, otherwise below ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kraft-migrator" / "kafka"


class NotFetchedError(OperatorError):
    """The release is not in the cache, and could not be fetched."""


def fetch_jars(version: str, hashes: Mapping[str, str], tell: Callable[[int], None] = lambda _: None) -> Path:
    """Return the folder with the jars of that release, fetched if necessary. Its jars have the expected hashes.

    Safe to interrupt and to call from several processes at once: each fetches into a separate folder, which becomes the
    release's folder by a rename.

    :param hashes: SHA-256 of each jar, by file.
    :param tell: called during the download, every `TELL_SECONDS`, with the number of bytes so far.
    :raises NotFetchedError: it is not in the cache and cannot be fetched.
    :raises OperatorError: the jars in the cache, or the fetched ones, have other hashes.
    """
    target = cache_directory() / version
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target.with_name(f"{version}.lock")):
            if not target.is_dir():
                _fetch(version, target, hashes, tell)
    refuse_other_jars(
        version,
        target,
        hashes,
        where=str(target),
        remedy="Find out who has changed this folder. Then delete it: the next run fetches the release again",
    )
    return target


def _fetch(version: str, target: Path, hashes: Mapping[str, str], tell: Callable[[int], None]) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{version}-", dir=target.parent) as work:
        _retrieve(version, Path(work), target, tell)
        jars = Path(work) / "jars"
        refuse_other_jars(
            version,
            jars,
            hashes,
            where="what was fetched from Maven Central",
            remedy="Nothing was kept. Find out whether a proxy or a mirror between this machine and Maven Central "
            "changes files, and run the command again",
        )
        jars.rename(target)


def _retrieve(version: str, work: Path, target: Path | None, tell: Callable[[int], None]) -> None:
    """
    :param target: the cache folder without the jars, for the message; None without a cache.
    """
    module = work / "ivy.xml"
    log4j_2 = _WITHOUT_LOG4J_2 if version.startswith("3.") else _WITH_LOG4J_2
    module.write_text(_IVY_MODULE.format(version=version, log4j_2=log4j_2))
    try:
        resolver = next(iter(pyspark_jars().glob("ivy-*.jar")), None)
    except OperatorError as error:
        raise NotFetchedError(error.what, where=error.where, remedy=error.remedy) from error
    if resolver is None:
        raise NotFetchedError("pyspark has no Ivy jar", where=str(pyspark_jars()), remedy="Run 'make setup' again")
    command = [
        str(find_java()),
        f"-Dsun.net.client.defaultConnectTimeout={CONNECT_TIMEOUT_MS}",
        f"-Dsun.net.client.defaultReadTimeout={READ_TIMEOUT_MS}",
        "-Djava.net.useSystemProxies=true",
        *("-jar", str(resolver), "-cache", str(work / "cache"), "-ivy", str(module), "-confs", "default"),
        *("-retrieve", str(work / "jars" / "[artifact]-[revision](-[classifier]).[ext]")),
    ]
    with ChildProcess("ivy", command, output=work / "ivy.log") as child:
        offline = _ended_or_offline(child, lambda: tell(_bytes_below(work / "cache")))
        if offline:
            child.kill()
        if offline or child.wait(timeout_seconds=END_SECONDS) != 0:
            raise _not_fetched(version, target, _reason_lines(child.output_text()))
    shutil.rmtree(work / "cache")


def _not_fetched(version: str, target: Path | None, said: str) -> NotFetchedError:
    lacking, copied = (
        ("", "")
        if target is None
        else ("is not in the cache and ", ", or copy this folder from a machine that has fetched the jars")
    )
    return NotFetchedError(
        f"Apache Kafka {version} {lacking}could not be fetched from Maven Central. The resolver says: {said}",
        where=str(target or "the resolver"),
        remedy=f"Connect this machine to the network (JAVA_TOOL_OPTIONS can set Java's https.proxyHost){copied}. "
        "If it is connected, check that Apache Kafka has such a release",
    )


def _ended_or_offline(child: ChildProcess, tell: Callable[[], None]) -> bool:
    """Wait for the resolver's end; True at once when it reports that it cannot reach its repository."""
    told_at = time.monotonic()

    def decided() -> bool:
        nonlocal told_at
        if time.monotonic() - told_at >= TELL_SECONDS:
            told_at = time.monotonic()
            tell()
        return child.exit_code() is not None or _is_offline(child.output_text())

    child.wait_until(decided, "the jars are fetched", timeout_seconds=FETCH_SECONDS)
    return child.exit_code() is None


def _is_offline(said: str) -> bool:
    return any(sign in said for sign in _OFFLINE_SIGNS)


def _reason_lines(said: str) -> str:
    """The lines with the reason, or else the last ones; without repetitions, and a bounded number."""
    lines = [line.strip() for line in said.splitlines() if any(char.isalnum() for char in line)]
    why = [line for line in lines if any(sign in line for sign in (*_OFFLINE_SIGNS, "Exception", "refused"))]
    shown = list(dict.fromkeys(why))[:SHOWN_LINES] or lines[-SHOWN_LINES:]
    return "; ".join(line[:SHOWN_CHARS] for line in shown) or "nothing"


def _bytes_below(directory: Path) -> int:
    """The bytes of all files below; the resolver may rename them meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                total += (Path(folder) / name).stat().st_size
    return total


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """An exclusive lock between processes, released by the kernel when its holder ends."""
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main(versions: list[str]) -> int:
    """Print the hashes of newly fetched releases. The cache is not used, because it proves nothing.

    :returns: the exit code.
    """
    if not versions or not all(RELEASE.fullmatch(version) for version in versions):
        print("Name each release by its three numbers: python -m migrator.parts.kafka_jars 3.9.1", file=sys.stderr)  # noqa: T201
        return ExitCode.REFUSED
    try:
        for version in versions:
            with tempfile.TemporaryDirectory() as work:
                _retrieve(version, Path(work), None, lambda _: None)
                for name, digest in hashes_of(Path(work) / "jars").items():
                    print(f"{digest}  {version}/{name}")  # noqa: T201
    except OperatorError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
