"""The commands that a rollout runs on a controller's machine: their words, and what their exit codes mean. Pure.

The engine builds commands and reads results with it. A command is a list of words without a shell. Output comes from
another host and is not trusted: only numbers of a known form reach the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import orjson

from migrator.config.reading import log_directories, metadata_directory
from migrator.errors import ExitCode, OperatorError
from migrator.rollout.inventory import ControllerKind, Inventory, Roll
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan.steps import Job
from migrator.rollout.ports import Observation, Output

DIRECTORIES_MAX = 256
"""The most directories of one node."""
FIGURE_END = 1 << 53
"""The figures of a report are below it."""
REASON_MAX = 200
"""Characters of the reason in an order."""
SHOWN_CHARS = 2000
"""Characters of a line from a command that are shown."""
VERSION = "{release_version}"
META_PROPERTIES = "meta.properties"
CAUSES = ("migrator: ", "Error: ")
"""How a line begins in which a command of this program says why it failed."""
MEANINGS: Mapping[Job, Mapping[int, str]] = {
    Job.PREFLIGHT: {
        ExitCode.DIFFERENT: "preflight has found blockers",
        ExitCode.REFUSED: "preflight could not examine everything",
    },
    Job.REHEARSE: {ExitCode.DIFFERENT: "the rehearsal has found blockers"},
    Job.VERIFY: {ExitCode.DIFFERENT: "ZooKeeper and the metadata log differ"},
}
REMEDIES: Mapping[Job, str] = {
    Job.PREFLIGHT: "Mend what it names (docs/checks.md): keys of 'brokers.settings' in the inventory, all others in "
    "the file; then 'migrator rollout resume'",
    Job.REHEARSE: "Mend what it names, then 'migrator rollout resume'",
    Job.VERIFY: "'migrator verify --repair' mends ZooKeeper; then 'migrator rollout resume'",
    Job.FORMAT: "Do what it says, then 'migrator rollout resume'",
    Job.GIVE_BACK: "Do what it says, then 'migrator rollout resume': it starts the controllers, waits until ZooKeeper "
    "has everything, and stops them again",
    Job.REOPEN: "'migrator gates reopen' says what to do; then 'migrator rollout resume'. 'migrator rollout apply' "
    "gives it up, and turns the migration off again",
    Job.UNREGISTER: "See that a controller leads, and that the login of 'access' has the right Alter on the cluster; "
    "then 'migrator rollout resume'",
    Job.LEAVE_OUT: "Do what it says, then 'migrator rollout resume': it gives the order again. If the node is there "
    "again: 'migrator rollout resume --with-node NODE'",
    Job.SET_ASIDE: "Move the directory away by hand, then 'migrator rollout resume'",
}


def preflight_of(inventory: Inventory, controllers: Sequence[str], brokers: Sequence[str]) -> list[str]:
    """The words of preflight for these property files."""
    kind = "stock" if inventory.controllers.kind is ControllerKind.STOCK else "ours"
    files = [word for path in controllers for word in ("-c", path)]
    of_brokers = [word for path in brokers for word in ("--brokers", path)]
    roll = ["--roll", Roll.RACK.value] if inventory.brokers.roll is Roll.RACK else []
    verify = [] if inventory.left_out.verify else ["--verify"]
    choices = ["--controllers", kind, *roll, *verify, "--json"]
    return [inventory.controllers.program, Job.PREFLIGHT.value, *files, *of_brokers, *choices]


def preflight_here(inventory: Inventory, node: Node) -> list[str]:
    """The words of preflight for the host of one controller."""
    whole = preflight_of(inventory, [node.properties], [])
    return [*(word for word in whole if word not in ("--roll", Roll.RACK.value)), "--here"]


def command_of(job: Job, node: Node, inventory: Inventory, cluster_id: str, release_version: str) -> list[str]:
    """The words of a job that is one command, with the files in their places. (Preflight gets copies.)

    :param release_version: the controllers' metadata.version; "" for that of the inventory, which may leave it to the
        command.
    """
    if job is Job.PREFLIGHT:
        return preflight_of(
            inventory,
            [each.properties for each in inventory.controllers.nodes],
            [each.properties for each in inventory.brokers.nodes],
        )
    controllers = inventory.controllers
    release_version = release_version or controllers.release_version
    stock = controllers.kind is ControllerKind.STOCK
    file = ["-c", node.properties]
    if job is Job.FORMAT and stock:
        return _stock_format(controllers.format, path=node.properties, cluster_id=cluster_id, version=release_version)
    version = ["--release-version", release_version] if release_version else []
    more = {
        Job.REHEARSE: [*file, *version, "--no-spark", "--json"],
        Job.FORMAT: [*file, "-t", cluster_id, *version, "--ignore-formatted"],
        Job.VERIFY: [*file, "--json"],
        Job.GIVE_BACK: [*file, "--yes"],
        Job.REOPEN: [*file, "--reason=migrator rollout rollback", "--yes-cluster-id", cluster_id],
    }[job]
    return [controllers.program, job.value, *more]


def _stock_format(words: Sequence[str], *, path: str, cluster_id: str, version: str) -> list[str]:
    """The words of Kafka's format command. When the version is "", its option is left out, too."""
    if not version:
        words = [
            word for word, following in zip(words, (*words[1:], ""), strict=True) if VERSION not in (word, following)
        ]
    return [
        word.replace("{path}", path).replace("{cluster_id}", cluster_id).replace(VERSION, version) for word in words
    ]


def silent_gone(gone: Sequence[Node], seen: Observation) -> list[int]:
    """The ids of voters among the nodes that are gone for good, without those that answer."""
    asked = [seen.voter(node) for node in gone if node.role is NodeKind.CONTROLLER]
    return [voter.node_id for voter in asked if voter is not None and voter.program is None]


def finish_without(leader: Node, inventory: Inventory, gone: Sequence[int], reason: str) -> list[str]:
    """The words of the order to the leader: the migration ends without controllers that are gone for good."""
    ids = [word for node_id in gone for word in ("--without", str(node_id))]
    words = [*Job.LEAVE_OUT.value.split(), "-c", leader.properties, *ids, f"--reason={reason}", "--yes"]
    return [inventory.controllers.program, *words]


def move_aside(directory: str, rollout: str) -> list[str]:
    """The words that rename a directory, and so keep it."""
    return ["mv", "-n", "-T", "--", directory, f"{directory}.rolled-back-{rollout}"]


def directories_of(node: Node, properties: Mapping[str, str]) -> list[str]:
    """The directories of a controller that hold its identity.

    :raises OperatorError: as `named_directories`.
    """
    return named_directories(node, [metadata_directory(properties), *log_directories(properties)])


def named_directories(node: Node, names: Iterable[str]) -> list[str]:
    """Each directory once.

    :raises OperatorError: there are more than any node has; each costs commands on the node's host.
    """
    found = list(dict.fromkeys(str(PurePosixPath(name)) for name in names if name))
    if len(found) > DIRECTORIES_MAX:
        raise OperatorError(
            f"log.dirs names {len(found)} directories, and at most {DIRECTORIES_MAX} are looked at",
            where=node.file_place,
            remedy="See who has written that file",
        )
    return found


def meaning(job: Job, output: Output) -> str:
    """Why a job failed, in words; "" if it succeeded."""
    if output.exit_code == 0:
        return ""
    return MEANINGS.get(job, {}).get(output.exit_code, f"{job.value} ended with exit code {output.exit_code}")


def printed(output: Output) -> dict[str, Any] | None:
    """The JSON object that a command printed; None if it printed none."""
    start, end = output.text.find("{"), output.text.rfind("}")
    try:
        found = orjson.loads(output.text[start : end + 1]) if 0 <= start < end else None
        orjson.dumps(found)  # orjson reads deeper nesting than it can write
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    return found if isinstance(found, dict) else None


def figures(job: Job, report: Mapping[str, Any] | None) -> dict[str, int]:
    """The part of a report for the journal: numbers only.

    :raises ValueError: it is no report of this program; the message says where.
    """
    found = {}
    if report is not None and job is Job.REHEARSE:
        estimate = _part(_part(report, "forecast"), "dual_write")
        found = {f"forecast_{name}": _figure(estimate, name) for name in ("seconds", "error")}
    elif report is not None and job is Job.VERIFY:
        found = {name: _figure(report, name) for name in ("differences", "rows")}
    return {name: number for name, number in found.items() if number is not None}


def _part(report: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = report.get(name)
    if part is not None and not isinstance(part, dict):
        raise ValueError(name)
    return part or {}


def _figure(report: Mapping[str, Any], name: str) -> int | None:
    number = report.get(name)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < FIGURE_END:
        raise ValueError(name)
    return round(number)


def tail(output: Output, lines: int = 12) -> Sequence[str]:
    """The last lines of a command's output, for the terminal. The cause that it gives comes last, after warnings."""
    said = [line[:SHOWN_CHARS] for line in f"{output.text}\n{output.errors}".splitlines() if line.strip()]
    causes = [line for line in said if line.startswith(CAUSES)]
    return [*(line for line in said if line not in causes), *causes][-lines:]
