"""The request of a comparison, its verdict (equal, different, or undecided), and the operator's next step. Pure.

Commands make a `VerifyRequest` and print the `Verdict`; scripts rely on its exit code and JSON. A source that could not
be read is an error and no verdict. Undecided means that leaves kept changing while they were read again. Output and
page show `next_step`: a sentence, and a command with the operator's own options, to be copied.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from migrator.errors import ExitCode
from migrator.values import fields_of, value
from migrator.verify.comparison import EXAMPLES_MAX, Comparison, Difference
from migrator.verify.named import Sources
from migrator.verify.recheck import Pair, Patience


@value
class VerifyRequest:
    """A comparison to make, with its Spark. The fields of the sources are those of `Sources`; ``directory`` is its
    ``metadata``."""

    zookeeper: str | None
    directory: str | None
    config: str | None = None
    master: str | None = None
    conf: Mapping[str, str] | None = None
    shards: int = 2
    patience: Patience = Patience()
    zookeeper_files: tuple[str, ...] = ()
    chroot: str | None = None
    archive: str | None = None

    @property
    def sources(self) -> Sources:
        """The sources of both sides."""
        return Sources(
            zookeeper=self.zookeeper,
            zookeeper_files=self.zookeeper_files,
            chroot=self.chroot,
            metadata=self.directory,
            config=self.config,
            archive=self.archive,
            shards=self.shards,
        )


@value
class Verdict:
    """``at``: the point where the sides were seen to be equal, or to differ; its offset is -1 when no KRaft quorum
    writes to this ZooKeeper. ``undecided``: leaves that kept changing, for the reason ``why``. ``read_again``: how many
    leaves differed at first. ``lag``: how many records ZooKeeper is behind the log, None when no KRaft quorum writes to
    it. ``stock``: the controllers of that quorum are Kafka's own, or were when they last wrote. ``cluster_id`` is empty
    when unknown."""

    comparison: Comparison
    seconds: float
    at: Pair
    undecided: tuple[Difference, ...] = ()
    why: str = ""
    read_again: int = 0
    lag: int | None = None
    cluster_id: str = ""
    stock: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """0 equal, 1 different, 2 could not tell. A source that could not be read raises an error instead."""
        if self.comparison.differences:
            return ExitCode.DIFFERENT
        return ExitCode.REFUSED if self.undecided else ExitCode.OK

    @property
    def word(self) -> str:
        return {ExitCode.OK: "equal", ExitCode.DIFFERENT: "different"}.get(self.exit_code, "could not tell")

    def to_json(self) -> dict[str, object]:
        return {
            "verdict": self.word,
            "equal": self.exit_code is ExitCode.OK,
            "cluster_id": self.cluster_id or None,
            "zxid": self.at.zxid,
            "offset": self.at.offset if self.at.offset >= 0 else None,
            "rows": self.comparison.rows,
            "differences": self.comparison.differences,
            "seconds": round(self.seconds, 2),
            "kinds": {kind: fields_of(counts) for kind, counts in self.comparison.kinds.items()},
            "examples": [_example(difference) for difference in self.comparison.examples],
            "read_again": self.read_again,
            "lag": self.lag,
            "undecided": [_example(difference) for difference in self.undecided[:EXAMPLES_MAX]],
            "why": self.why,
            "log": self.comparison.log and self.comparison.log.to_json(),
            "zookeeper_files": self.comparison.files and self.comparison.files.to_json(),
        }


def _example(difference: Difference) -> dict[str, str | int | None]:
    return {**fields_of(difference), "status": difference.status}


ANY_FILE = "controller.properties"
"""Stands for the controller's property file when the operator gave none."""


@value
class NextStep:
    """``text`` is a sentence that ends with a colon; ``command`` follows."""

    text: str
    command: str


def next_step(verdict: Verdict, sources: Sources) -> NextStep:
    """The next step after this verdict on these sources."""
    file = sources.config or ANY_FILE
    status = shlex.join(["migrator", "status", "-c", file])
    again = shlex.join(["migrator", "verify", *_given(sources)])
    if not sources.live:
        text = "These are files, which may be older than the cluster. Compare what runs now:"
        return NextStep(text, shlex.join(["migrator", "verify", "-c", file]))
    if verdict.lag is None:
        return NextStep("No KRaft quorum writes to this ZooKeeper. See whether the migration has begun:", status)
    if verdict.exit_code is ExitCode.REFUSED:
        if verdict.why and not verdict.stock:
            return NextStep("See what the controllers do, and compare again after that:", status)
        return NextStep("Compare again when the cluster changes less:", again)
    if verdict.stock:
        return NextStep(_STOCK[verdict.exit_code], again)
    if verdict.exit_code is ExitCode.OK:
        return NextStep("See what comes next in the migration:", status)
    repair = ["migrator", "verify", *_given(sources), *(() if sources.config else ("-c", ANY_FILE)), "--repair"]
    text = "Find out who wrote to ZooKeeper. Then let the active controller overwrite ZooKeeper with the log:"
    return NextStep(text, shlex.join(repair))


_STOCK = {
    ExitCode.OK: "Go on with the migration, and compare again after the next step:",
    ExitCode.DIFFERENT: "Find out who wrote to ZooKeeper. Then restart the active controller: the next one writes the "
    "log to ZooKeeper again. Compare after that:",
}


def _given(sources: Sources) -> list[str]:
    options = (("--zookeeper", sources.zookeeper), ("--metadata", sources.metadata), ("-c", sources.config))
    return [word for name, text in options if text for word in (name, text)]
