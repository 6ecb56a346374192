"""The page of what was run with which result: ``python -m tests.compatibility > docs/compatibility.md``.

What can be run is in tables of the tests: procedures, variations, releases of brokers, suites of clients. What came of
it is in docs/results/test-long.tsv, where the last line of a case counts. A case of a shorter lane has no line there.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from migrator.errors import OperatorError
from migrator.values import value
from tests.interop.procedures.support.procedure import Procedure, Step
from tests.interop.procedures.support.variations import VARIATIONS, case
from tests.interop.procedures.test_procedures import PROCEDURES
from tests.lanes import TEST_LONG
from tests.peers.support.librdkafka import BY_CHANCE, FAIL_ON_STOCK
from tests.results import CASES, PROCESSOR, ROOT

NOT_RUN = "not run"
PHASES: Mapping[str, frozenset[Step]] = {
    "dual-write": frozenset({Step.DUAL_WRITE}),
    "brokers in KRaft mode": frozenset({Step.KRAFT, Step.KRAFT_TOGETHER}),
    "finished": frozenset({Step.FINISHED}),
    "back in ZooKeeper mode": frozenset({Step.ZOOKEEPER}),
}
"""A procedure comes through a phase if it has one of these steps."""
VERSIONS = "tests/interop/test_versions.py::test_from_zookeeper_to_the_finished_quorum"
FIELD = "tests/interop/procedures/test_field_brokers.py"
FORWARD = ("dual-write", "brokers in KRaft mode", "finished")
MORE_OF_RELEASES: Sequence[tuple[str, Sequence[str], str]] = (
    *((release, FORWARD, f"{VERSIONS}[{release[:3]}]") for release in ("3.6.2", "3.7.2", "3.8.1", "3.9.1")),
    ("3.6.2, 3.8.1 and 3.9.1 in one cluster", FORWARD, f"{VERSIONS}[mixed]"),
    ("3.6.2, upgraded to 3.9.1", FORWARD[:1], f"{FIELD}::test_brokers_are_upgraded_while_both_sides_are_written"),
    ("3.9.1, upgraded to 4.1.1", FORWARD[2:], f"{FIELD}::test_brokers_are_upgraded_to_4_1_after_the_end"),
)
"""Release, phases, test: what comes through phases beside procedures."""
FRANZ_GO = "tests/peers/test_franz_go.py"
LIBRDKAFKA = "tests/peers/test_librdkafka.py"
CLIENTS = (
    ("franz-go 1.18.0, all tests of kgo, on both quorums", f"{FRANZ_GO}::test_all_as_on_kafkas_controllers"),
    *(
        (f"librdkafka 2.0.2, {suite}, on both quorums", f"{LIBRDKAFKA}::test_as_on_kafkas_controllers[{suite}]")
        for suite in ("admin", "transactions", "groups")
    ),
)
"""Suite and test."""
HEAD = """\
# Compatibility

The combinations that were tried with this quorum, and the results. This page is generated:
`python -m tests.compatibility > docs/compatibility.md`. The results are those of `docs/results/test-long.tsv`, to which
`make test-long` adds lines; of each case, the last run counts. The commit is the one that was tested. A `+` behind it
means that files had been changed since. "Not run" means that no result is known. Cases of the two shorter
[lanes](lanes.md) have no line in that file. For them, this page names the command that runs them.

[Kafka's own tests, and ours](interop.md) has every scenario of Kafka's tests of the migration.
"""


@value
class Outcome:
    """The last run of one case."""

    commit: str
    day: str
    result: str
    seconds: str
    figures: str


def outcomes(lines: Iterable[str]) -> dict[str, Outcome]:
    """By case: the last of its lines (`tests.results.HEADS`)."""
    found = {}
    for line in lines:
        commit, day, name, result, seconds, figures = [*line.split("\t"), "", ""][:6]
        kept = " ".join(word for word in figures.split() if not word.startswith(f"{PROCESSOR}="))
        found[name] = Outcome(commit, day, result, seconds, kept)
    return found


class Cases:
    """What there is to run, by node id, with its lane; and what came of it.

    :param lanes: by node id.
    """

    def __init__(self, lanes: Mapping[str, str], results: Mapping[str, Outcome]) -> None:
        self._lanes = lanes
        self._results = results

    def of(self, named: str) -> list[str]:
        """The node ids of a test, all of its cases without one, or those of the file of a stage (no ``test_``).

        :raises OperatorError: there is no such test.
        """
        path, _, function = named.partition("::")
        prefix = f"{named}[" if function.startswith("test_") else f"{path}::"
        found = sorted(each for each in self._lanes if each == named or each.startswith(prefix))
        if not found:
            raise OperatorError("this test does not exist", where=named, remedy="Name another one in the tables")
        return found

    def verdict(self, named: Iterable[str]) -> str:
        """Of several tests in a few words: ``passed``, or how many did what."""
        each = [self._verdict(one) for name in named for one in self.of(name)]
        counted = Counter(each)
        if len(each) == 1:
            return each[0]
        return ", ".join(f"{count} {verdict}" for verdict, count in counted.items())

    def outcome(self, named: str) -> Outcome | None:
        """Of one test with a single case; None if it has not run."""
        (one,) = self.of(named)
        return self._results.get(one)

    def _verdict(self, one: str) -> str:
        outcome = self._results.get(one)
        if outcome is not None:
            return outcome.result
        lane = self._lanes[one]
        return NOT_RUN if lane == TEST_LONG else f"in `make {lane}`"


def page(cases: Cases) -> Iterator[str]:
    """Line by line.

    :raises OperatorError: a table names a test that does not exist.
    """
    yield from HEAD.splitlines()
    yield from _procedures(cases)
    yield from _releases(cases)
    yield from _clients(cases)
    yield from _variations(cases)
    yield from _left(cases)


def _procedures(cases: Cases) -> Iterator[str]:
    yield from ("", "## Published procedures", "")
    total = cases.verdict(name for each in PROCEDURES for name in case(each))
    yield f"Each with two brokers, while a client writes; in the end every record is read back. In all: {total}."
    yield from ("", "| procedure | brokers | result | commit, day | seconds | figures |", "|---|---|---|---|---|---|")
    for each in PROCEDURES:
        (name,) = case(each)
        yield _row(each.name, each.release, cases.verdict([name]), *_run(cases.outcome(name)))


def _releases(cases: Cases) -> Iterator[str]:
    yield from ("", "## Releases of brokers", "")
    yield "How many procedures and tests bring brokers of a release through a phase."
    yield from ("", _row("brokers", *PHASES), "|---" * (len(PHASES) + 1) + "|")
    releases = [*dict.fromkeys([*sorted({each.release for each in PROCEDURES}), *(row[0] for row in MORE_OF_RELEASES)])]
    for release in releases:
        yield _row(
            release, *(cases.verdict(_through(release, phase)) if _through(release, phase) else "" for phase in PHASES)
        )


def _through(release: str, phase: str) -> list[str]:
    performed: list[Procedure] = [each for each in PROCEDURES if each.release == release]
    names = [name for each in performed if PHASES[phase].intersection(each.steps) for name in case(each)]
    return names + [test for other, phases, test in MORE_OF_RELEASES if other == release and phase in phases]


def _clients(cases: Cases) -> Iterator[str]:
    yield from ("", "## Suites of clients", "")
    yield "Tests that clients of Kafka have for themselves, against real brokers on this quorum. `stock_` is before"
    yield "what came of the same tests when Kafka's controllers had taken over. The result `passed` means that"
    yield "each test came out alike on both quorums; `failed=` counts those that fail on both, for the reasons below."
    yield from ("", "| suite | result | commit, day | seconds | figures |", "|---|---|---|---|---|")
    for suite, name in CLIENTS:
        yield _row(suite, cases.verdict([name]), *_run(cases.outcome(name)))
    for title, tests in (("What fails on Kafka's controllers too", FAIL_ON_STOCK), ("What fails by chance", BY_CHANCE)):
        yield from ("", f"{title}:", "", "| test of librdkafka | why |", "|---|---|")
        for test, why in tests.items():
            yield _row(test, why)


def _variations(cases: Cases) -> Iterator[str]:
    yield from ("", "## Variations of a procedure", "")
    yield "What people change in a procedure, whose procedures do so, and what comes of it here."
    yield from ("", "| variation | who | here | it says | tests |", "|---|---|---|---|---|")
    for each in VARIATIONS:
        result = f"{each.result}: {each.reason}" if each.reason else str(each.result)
        said = f"`{each.message.strip()}`" if each.message else ""
        yield _row(each.variation, each.who, result, said, cases.verdict(each.tests))


def _left(cases: Cases) -> Iterator[str]:
    left = sorted({one for named in named_tests() for one in cases.of(named) if cases.verdict([one]) == NOT_RUN})
    if left:
        yield from ("", "## Not run yet", "", *(f"* `{one}`" for one in left))


def _run(outcome: Outcome | None) -> tuple[str, str, str]:
    return ("", "", "") if outcome is None else (f"{outcome.commit}, {outcome.day}", outcome.seconds, outcome.figures)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;').replace('<', '&lt;') for cell in cells)} |"


def named_tests() -> Iterator[str]:
    """Every test that the page is about."""
    yield from (name for each in PROCEDURES for name in case(each))
    yield from (name for each in VARIATIONS for name in each.tests)
    yield from (test for *_, test in MORE_OF_RELEASES)
    yield from (test for _, test in CLIENTS)


def collect(files: Iterable[str]) -> dict[str, str]:
    """The lane of each test in these files, by node id.

    :raises subprocess.CalledProcessError: a file cannot be imported; what pytest printed goes to standard error.
    """
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "--list-lanes", *sorted(files)]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        sys.stderr.write(run.stdout)
        run.check_returncode()
    rows = (line.split("\t", 1) for line in run.stdout.splitlines() if "\t" in line)
    return {nodeid: lane for lane, nodeid in rows}


def main() -> None:
    """Print the page."""
    lanes = collect({name.partition("::")[0] for name in named_tests()})
    lines = CASES.read_text(encoding="utf-8").splitlines()[1:]
    sys.stdout.write("\n".join(page(Cases(lanes, outcomes(lines)))) + "\n")


if __name__ == "__main__":
    main()
