"""librdkafka's own tests (in C): from Debian's source package, built once, and run against a cluster.

Only the source package of Debian 12 is known here, by its checksum; elsewhere there is nothing to run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from migrator.errors import OperatorError
from migrator.parts.kafka_jars import cache_directory
from migrator.parts.processes import ChildProcess, run_to_end
from tests.peers.support.franz_go import OUTPUT_MAX, SuiteResult

PACKAGE, VERSION = "librdkafka", "2.0.2"
REVISION = "1"
SHA_256 = "f321bcb1e015a34114c83cf1aa7b99ee260236aab096b85c003170c90a47ca9d"
NEEDED = ("apt-get", "make", "gcc", "g++")
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
FETCH_SECONDS, BUILD_SECONDS = 300.0, 1800.0
AT_ONCE = 4
"""Tests that run at once: they wait most of the time, each for topics and groups of its own."""
LEFT_OUT = ("--disable-ssl", "--disable-gssapi", "--disable-curl", "--disable-zstd", "--disable-lz4-ext")
"""Of libraries that these tests do not need."""
FAIL_ON_STOCK: Mapping[str, str] = {
    "0081_admin": "It creates topics with a time-out of 0 ms. Kafka's controllers in KRaft mode answer "
    "REQUEST_TIMED_OUT to this and create nothing, and librdkafka shows the answer as success; the test expects "
    "INVALID_CONFIG of one topic (0081-admin.c:232). Our controllers create the topics. There, the test goes on to "
    "access control lists, and describes them (0081-admin.c:1325) before the broker has them. Later versions of the "
    "test wait.",
    **dict.fromkeys(
        (
            *("0113_cooperative_rebalance h_delete_topic", "0113_cooperative_rebalance i_delete_topic_2"),
            *("0113_cooperative_rebalance j_delete_topic_no_rb_callback", "0113_cooperative_rebalance n_wildcard"),
        ),
        "It deletes a topic that a consumer has, and then closes this consumer. The close does not end within the 15 "
        "or 30 s of the test.",
    ),
}
"""Tests that fail on Kafka's own controllers, fresh ones too, with the reason."""
BY_CHANCE: Mapping[str, str] = {
    "0113_cooperative_rebalance b_subscribe_with_cb_test": "It waits for exactly 3 and 2 calls of a callback. On a "
    "busy machine the second consumer comes too late for the first rebalance, and is called once.",
    "0113_cooperative_rebalance l_unsubscribe": "It wants exactly one call of a callback before a consumer leaves. On "
    "a busy machine the next rebalance comes first: 2 calls were seen on our controllers, 3 on Kafka's.",
    "0118_commit_rebalance": "It waits a few seconds for the first 10 records of its second consumer. On a busy "
    "machine they come later. Seen on Kafka's controllers.",
}
"""Tests that may fail on any controllers, because librdkafka's test depends on time, with the reason."""
_RESULT = re.compile(r"=+ Test (\S+) (PASSED|FAILED|SKIPPED)")
_BEGUN = re.compile(r"=+ Running test (\S+) =+")


def can_be_built() -> bool:
    """Whether this is the Debian whose source package is known, with a compiler."""
    known = SOURCES.is_file() and "bookworm" in SOURCES.read_text(encoding="utf-8")
    return known and all(shutil.which(name) for name in NEEDED)


def build() -> Path:
    """The folder with the program `test-runner`, in the project's cache.

    :raises OperatorError: the package cannot be fetched, has another checksum, or does not compile.
    """
    place = cache_directory().parent / PACKAGE
    tests = place / f"{PACKAGE}-{VERSION}" / "tests"
    if not (tests / "test-runner").exists():
        place.mkdir(parents=True, exist_ok=True)
        with tarfile.open(_fetch(place)) as archive:
            archive.extractall(place, filter="data")
        for command in (["./configure", *LEFT_OUT], ["make", "-j2", "libs"], ["make", "-C", "tests", "test-runner"]):
            run_to_end("build", command, timeout_seconds=BUILD_SECONDS, cwd=tests.parent)
    return tests


def _fetch(place: Path) -> Path:
    """The archive, by apt, with package lists of our own: the system's stay as they are."""
    archive = place / f"{PACKAGE}_{VERSION}.orig.tar.gz"
    if not archive.exists():
        text = SOURCES.read_text(encoding="utf-8")
        (place / "with-sources.sources").write_text(re.sub(r"(?m)^Types: deb$", "Types: deb deb-src", text))
        (place / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        options = {
            "Dir::Etc::sourcelist": str(place / "with-sources.sources"),
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State::lists": str(place / "lists"),
        }
        apt = ["apt-get", "-q", *(word for key, text in options.items() for word in ("-o", f"{key}={text}"))]
        wanted = f"{PACKAGE}={VERSION}-{REVISION}"
        for command in ([*apt, "update"], [*apt, "source", "--download-only", wanted]):
            run_to_end("apt-get", command, timeout_seconds=FETCH_SECONDS, cwd=place)
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA_256:
        archive.unlink()
        raise OperatorError("it is not the archive that is known", where=str(archive), remedy="Run the test again")
    return archive


def run(tests: Path, bootstrap: str, directory: Path, *, chosen: Sequence[str], seconds: float) -> SuiteResult:
    """Run tests against a cluster, each in a process of its own: a failure ends its process.

    Tests on librdkafka's own model of a cluster do not run. Nothing runs any more when it returns.

    :param tests: as `build` gives it.
    :param chosen: the number of a test, e.g. ``0081``, or of one part of a test, e.g. ``0113 n_wildcard``.
    :param seconds: for each; what has not ended by then has failed.
    """
    configuration = directory / "test.conf"
    configuration.write_text(f"bootstrap.servers={bootstrap}\nbroker.address.family=v4\n")
    environment = os.environ | {
        "RDKAFKA_TEST_CONF": str(configuration),
        "TEST_KAFKA_VERSION": "3.9.1",
        "LD_LIBRARY_PATH": f"{tests.parent / 'src'}:{tests.parent / 'src-cpp'}",
    }

    def one(each: str) -> SuiteResult:
        number, _, part = each.partition(" ")
        command, output = [str(tests / "test-runner"), "-p1", "-L"], directory / f"{each}.log"
        own = environment | {"TESTS": number} | ({"SUBTESTS": part} if part else {})
        with ChildProcess(f"test {each}", command, output=output, cwd=directory, env=own) as child:
            try:
                child.wait(timeout_seconds=seconds)
            except OperatorError:
                child.kill()
            return read(child.output_text()[:OUTPUT_MAX], part)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(one, chosen))
    return SuiteResult(
        *(frozenset[str]().union(*names) for names in zip(*map(dataclasses.astuple, results), strict=True))
    )


def read(output: str, part: str = "") -> SuiteResult:
    """The output of `test-runner`; a test that began and did not end has failed.

    :param part: the only part of the test that was to run: it is named with the test, and skipped if it did not begin.
    """
    results: dict[str, set[str]] = {"PASSED": set(), "FAILED": set(), "SKIPPED": set()}
    for name, word in _RESULT.findall(output):
        results[word].add(name)
    results["FAILED"].update(set(_BEGUN.findall(output)).difference(*results.values()))
    if part:
        found = {word: {f"{name} {part}" for name in names} for word, names in results.items()}
        begun = re.search(rf"\[ [^\]\n]*\b{re.escape(part)}\b", output)
        results = found if begun else {"PASSED": set(), "FAILED": set(), "SKIPPED": set[str]().union(*found.values())}
    return SuiteResult(*(frozenset(results[word]) for word in ("PASSED", "FAILED", "SKIPPED")))
