"""The part of preflight that only a rollout can do: what a later step needs on the host of each node.

Each host is asked before the first step: whether the node's commands would work (`Executor.trial`), whether there is
room for the metadata, which Java there is for the controllers that take over; and on the hosts of the controllers
`migrator preflight --here` looks at ports, directories, key stores and what the comparison needs. Nothing is changed.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from migrator.config.reading import metadata_directory
from migrator.errors import ExitCode, OperatorError
from migrator.preflight.check import Concerns, run_checks
from migrator.preflight.checks.hosts import CHECKS
from migrator.preflight.checks.machine import SPARE_BYTES, room_for
from migrator.preflight.evidence import Evidence, HostFacts, MachineFacts, Trouble
from migrator.rollout.files.property_files import at_once, properties_of
from migrator.rollout.inventory import ControllerKind
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan import jobs
from migrator.rollout.plan.reports import entries_of
from migrator.rollout.ports import Output, Trial
from migrator.values import value

LOOK = (
    'set -eu; java=$1; path=$2; while [ ! -e "$path" ] && [ "$path" != / ]; do path=$(dirname "$path"); done; '
    'if [ -w "$path" ]; then echo writable; else echo not writable; fi; df -Pk "$path" || true; '
    'if [ -n "$java" ]; then PATH=${JAVA_HOME:+$JAVA_HOME/bin:}$PATH; echo "java $( (java -version 2>&1 || true) '
    """| sed -n 's/.*version "\\(1\\.\\)\\{0,1\\}\\([0-9]*\\).*/\\2/p' | head -n 1)"; fi"""
)
"""Arguments: a word where Java is asked for, or nothing; the directory, or where it will be. One line,
because a word of a command may have no line break. Java 8 calls itself 1.8."""
_FREE = re.compile(r"\s\d+\s+\d+\s+(-?\d{1,18})\s+\d+%\s")
_JAVA = re.compile(r"^java (\d{0,9})$", re.MULTILINE)
LOOK_SECONDS = 300.0
JAVA_OF_4, JAVA_BEFORE = 17, 8
RUN_AS = "Let the executor run sh there as the user of the service (docs/rollout-executors.md, sudo)"


@value
class _Host:
    """A node whose host is looked at. ``trials``: the nodes of the host whose commands are tried, for a controller also
    Kafka's own that takes over. ``needed_bytes``: room for the metadata. ``java``: the version that is needed; 0 for
    none."""

    who: str
    node: Node
    trials: Sequence[Node]
    needed_bytes: int
    java: int


async def with_hosts(parts: RolloutParts, runner: Node, state: Path, output: Output) -> Output:
    """The output of preflight, with what was found on the hosts of all nodes.

    :param runner: the controller on whose host preflight ran.
    :param state: the rollout's directory on this machine.
    :param output: of preflight. One that is no report stays as it is.
    """
    report = jobs.printed(output)
    if report is None or not isinstance(report.get("findings"), list):
        return output
    inventory = parts.inventory
    parts.tell(f"preflight: looks at the hosts of {len(inventory.nodes)} nodes, and tries the commands of the rollout")
    looked = report.get("looked_at")
    records = looked.get("records") if isinstance(looked, dict) else 0
    needed = room_for(records if isinstance(records, int) else 0)
    hosts = [_host(parts, node, 0 if node is runner else needed) for node in inventory.nodes]
    facts = await at_once(partial(_look, parts), hosts)
    others = [] if _is_alone(parts) else [node for node in inventory.controllers.nodes if node is not runner]
    reports = await at_once(partial(_look_here, parts), others)
    free = (await asyncio.to_thread(shutil.disk_usage, state)).free
    archive = needed - SPARE_BYTES  # what the log may grow by later does not come here
    facts.append(HostFacts("this machine", str(state), directory=str(state), free_bytes=free, needed_bytes=archive))
    facts += [each for each in reports if isinstance(each, HostFacts)]
    concerns = Concerns.STOCK if inventory.controllers.kind is ControllerKind.STOCK else Concerns.OURS
    evidence = Evidence((), (), (), None, MachineFacts(0), (), hosts=tuple(facts))
    found = [run_checks(CHECKS, evidence, concerns).to_json()]
    return _merged(output, report, [*found, *(each for each in reports if not isinstance(each, HostFacts))])


def _host(parts: RolloutParts, node: Node, needed: int) -> _Host:
    stock, release = parts.inventory.controllers.stock.get(node.node_id), parts.inventory.handover
    who = f"{node.role.value} {node.node_id}"
    if stock is None or release is None or node not in parts.inventory.controllers.nodes:
        return _Host(who, node, (node,), needed, 0)
    return _Host(who, node, (node, stock), needed, JAVA_BEFORE if release.rolling else JAVA_OF_4)


def _is_alone(parts: RolloutParts) -> bool:
    """Whether only the first controller's host runs commands of this program: Kafka's controllers migrate, and nothing
    is compared."""
    return parts.inventory.controllers.kind is ControllerKind.STOCK and parts.inventory.left_out.verify


async def _look(parts: RolloutParts, host: _Host) -> HostFacts:
    node, where = host.node, f"{host.node.name} on {host.node.host}"
    own, *later = [await parts.executor.trial(each) for each in host.trials]
    untried = tuple(dict.fromkeys(it for one in (own, *later) for it in one.untried))
    facts = HostFacts(host.who, where, _faults([own]), untried, later=_faults(later))
    try:
        directory = metadata_directory(await properties_of(parts.executor, node))
    except OperatorError as error:
        return replace(facts, faults=(*facts.faults, _trouble(error)))
    if not directory.startswith("/"):  # a placeholder, or relative to a directory that only the service knows
        return replace(facts, unseen=f"the path of {directory or 'its directory'} is unknown")
    words = ["sh", "-c", LOOK, "migrator", "java" if host.java else "", directory]
    try:
        output = await parts.executor.run(node, words, seconds=LOOK_SECONDS)
    except OperatorError as error:
        return _not_seen(facts, node, _trouble(error))
    if output.exit_code:
        what = f"a look at the disk ended with exit code {output.exit_code}"
        return _not_seen(facts, node, Trouble(where, what, RUN_AS))
    free, java = _FREE.search(output.text), _JAVA.search(output.text)
    return replace(
        facts,
        directory=f"{node.host}:{directory}",
        free_bytes=None if free is None else int(free[1]) * 1024,
        writable="not writable" not in output.text,
        needed_bytes=host.needed_bytes,
        java=None if java is None else int(java[1] or 0),
        needs_java=host.java,
    )


def _not_seen(facts: HostFacts, node: Node, why: Trouble) -> HostFacts:
    """`run` has failed. On the host of a controller, later steps need it; on that of a broker, only what an earlier
    attempt has left does."""
    if node.role is NodeKind.BROKER:
        return replace(facts, unseen=f"{why.what}. {why.remedy}")
    return replace(facts, faults=(*facts.faults, why))


async def _look_here(parts: RolloutParts, node: Node) -> Mapping[str, Any] | HostFacts:
    """The report of `migrator preflight --here`, or why there is none."""
    where, words = node.place, jobs.preflight_here(parts.inventory, node)
    try:
        output = await parts.executor.run(node, words, seconds=LOOK_SECONDS)
    except OperatorError as error:
        fault = _trouble(error)
    else:
        report = jobs.printed(output)
        if report is not None and isinstance(report.get("findings"), list):
            return _renamed(report, node)
        fault = Trouble(where, f"preflight ended with exit code {output.exit_code}", f"Type there: {' '.join(words)}")
    return HostFacts(f"{node.role.value} {node.node_id}", where, (fault,))


def _renamed(report: Mapping[str, Any], node: Node) -> Mapping[str, Any]:
    """The report with the name of the host before each place."""
    found = {name: entries_of(report, name) for name in ("findings", "unknown")}
    for each in found["findings"]:
        places = each.get("where")
        each["where"] = [f"{node.host}:{place}" for place in places] if isinstance(places, list) else [node.host]
    for each in found["unknown"]:
        each["where"] = f"{node.host}:{each.get('where')}"
    return found


def _merged(output: Output, report: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> Output:
    findings = [each for one in (report, *others) for each in entries_of(one, "findings")]
    unknown = [each for one in (report, *others) for each in entries_of(one, "unknown")]
    blockers = sum(each.get("severity") == "blocker" for each in findings)
    code = ExitCode.DIFFERENT if blockers else output.exit_code
    if unknown and code == ExitCode.OK:
        code = ExitCode.REFUSED
    counted = {"findings": findings, "unknown": unknown, "blockers": blockers, "warnings": len(findings) - blockers}
    return replace(output, exit_code=int(code), text=json.dumps({**report, **counted, "exit_code": int(code)}))


def _faults(trials: Sequence[Trial]) -> tuple[Trouble, ...]:
    return tuple(_trouble(fault) for one in trials for fault in one.faults)


def _trouble(error: OperatorError) -> Trouble:
    return Trouble(error.where, error.what, error.remedy)
