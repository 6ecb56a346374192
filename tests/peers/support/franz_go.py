"""franz-go's own tests (package kgo): fetched as a Go module, built once a run, and run against a cluster.

The version and its checksums are those of testdata/franz-go/go.mod and go.sum; Go refuses any other content.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from migrator.errors import OperatorError
from migrator.parts.processes import ChildProcess
from migrator.values import value
from tests.peers.support.go import build

MODULE = Path(__file__).parents[1] / "testdata" / "franz-go"
PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
OUTPUT_MAX = 20_000_000
"""Bytes of output that are read."""
_RESULT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
_BEGUN = re.compile(r"^=== RUN\s+(\S+)", re.MULTILINE)


@value
class SuiteResult:
    """Names of tests, by what came of them; what began and did not end has failed."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]


def built(go: str, directory: Path) -> Path:
    """The program that runs the tests; errors as in `go.build`."""
    return build(go, MODULE, PACKAGE, directory / "kgo.test", tests=True)


def run(program: Path, bootstrap: str, directory: Path, *, tests: str, seconds: int, records: int) -> SuiteResult:
    """Run tests against a cluster of at least two brokers; ends within ``seconds``, and leaves nothing running.

    :param tests: a regular expression of names, as of ``go test -run``.
    :param records: that each chain of producers and consumers moves.
    :raises OperatorError: it neither ended nor could be made to, or it ran nothing; with its last lines.
    """
    environment = os.environ | {
        "KGO_SEEDS": bootstrap,
        "KGO_TEST_RF": "2",
        "KGO_TEST_RECORDS": str(records),
        "KGO_TEST_MAX_TOPIC_PARTS": "5",
        "KGO_LOG_LEVEL": "none",
    }
    command = [str(program), "-test.v", f"-test.run={tests}", f"-test.timeout={seconds}s"]
    with ChildProcess("kgo", command, output=directory / "kgo.log", cwd=directory, env=environment) as child:
        child.wait(timeout_seconds=seconds + 60.0)
        result = read(child.output_text()[:OUTPUT_MAX])
        if not result.passed | result.failed:
            raise OperatorError(f"it ran no test: {child.tail()}", where=str(program), remedy="Read its output")
        return result


def read(output: str) -> SuiteResult:
    """The output of Go's tests with ``-test.v``."""
    results = {"PASS": set[str](), "FAIL": set[str](), "SKIP": set[str]()}
    for word, name in _RESULT.findall(output):
        results[word].add(name)
    unended = set(_BEGUN.findall(output)).difference(*results.values())
    return SuiteResult(
        frozenset(results["PASS"]), frozenset(results["FAIL"] | unended), frozenset(results["SKIP"])
    )  # fmt: skip
