"""The next step after a verdict: one sentence, and the command to type. Pure.

Output and page show it. The command has the operator's own options, so that it can be copied.
"""

from __future__ import annotations

import shlex

from migrator.errors import ExitCode
from migrator.values import value
from migrator.verify.named import Sources
from migrator.verify.verdict import Verdict

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
