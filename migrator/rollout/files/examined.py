"""The property files for preflight: of all controllers and brokers, as they will be in the migration.

They are copied to a directory on the host where preflight runs. Only the user of the service may enter it, because the
files hold secrets. It is removed afterwards, however preflight ends; a directory that a killed command has left is
removed first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import PurePosixPath

from migrator.config.properties import encoded, parse_properties
from migrator.config.property_edits import with_values
from migrator.config.types import entries_of
from migrator.errors import OperatorError
from migrator.rollout.files.property_files import text_of
from migrator.rollout.journal.progress import Progress
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.modes import FileMode, ModeSettings, digest, file_mode, parsed, rewritten
from migrator.rollout.plan.steps import Act, Phase
from migrator.rollout.ports import Output
from migrator.values import value

DIRECTORY = str(PurePosixPath("/tmp", "migrator-preflight-"))  # noqa: S108 - mkdir refuses what is there already
DIRECTORIES = ("metadata.log.dir", "log.dir", "log.dirs")
"""Keys that name directories of a node's own host."""
SECONDS = 60.0


@value
class ExaminedFiles:
    """``controllers`` and ``brokers``: paths of the copies. The first controller is the one on the host where preflight
    runs, the only one whose placeholders are looked up there. ``names``: by a text in preflight's output, the name that
    the operator knows. ``digests``: by node, of the original file."""

    controllers: tuple[str, ...]
    brokers: tuple[str, ...]
    names: Mapping[str, str]
    digests: Mapping[str, str]

    def known(self, output: Output) -> Output:
        """Preflight's output, with the names that the operator knows."""
        text, errors = output.text, output.errors
        for ours, theirs in self.names.items():
            text, errors = text.replace(ours, theirs), errors.replace(ours, theirs)
        return replace(output, text=text, errors=errors)


@asynccontextmanager
async def copies(parts: RolloutParts, host: Node, rollout: str) -> AsyncIterator[ExaminedFiles]:
    """Copy the files to a node's host, and remove them at the end.

    :raises OperatorError: a host cannot be reached, or a file cannot be read, changed as needed, or written.
    """
    inventory, directory = parts.inventory, f"{DIRECTORY}{rollout}"
    settings = parts.mode_settings("")  # no broker comes back from KRaft mode here
    await _do(parts, host, "rm", "-rf", "--", directory)
    await _do(parts, host, "mkdir", "-m", "700", "--", directory)
    try:
        names: dict[str, str] = {}
        digests: dict[str, str] = {}
        for node in inventory.nodes:
            path = _copy_of(node, directory)
            found = await text_of(parts.executor, node)
            digests[node.name] = digest(encoded(found))
            text = wanted(node, found, settings)
            if not _shares_disk(node, host):
                text = elsewhere(text, f"{directory}/{node.node_id}")
                names[f"{directory}/{node.node_id}/"] = "/"
            await parts.executor.copy(host, path, encoded(text))
            names[path] = node.properties if node.host == host.host else f"{node.host}:{node.properties}"
        yield ExaminedFiles(
            tuple(_copy_of(node, directory) for node in inventory.controllers.nodes),
            tuple(_copy_of(node, directory) for node in inventory.brokers.nodes),
            names,
            digests,
        )
    finally:
        await remove_copies(parts, host, rollout)


async def remove_left_copies(parts: RolloutParts, progress: Progress) -> None:
    """Remove what a command that was killed in preflight has left, on the host where it ran. The operator is told if
    that fails."""
    known = progress.of(Phase.PREFLIGHT.value)
    if known.begun is not Act.RUN:
        return
    inventory = parts.inventory
    name = known.expected.get("node", inventory.controllers.nodes[0].name)
    node = next((each for each in (*inventory.nodes, *inventory.gone) if each.name == name), None)
    if node is None:
        directory, host = f"{DIRECTORY}{progress.rollout}", known.expected.get("host")
        parts.tell(
            f"remove {directory} on {host} by hand, if it is there: copies of property files are in it, and {name} is "
            "not in the inventory any more"
        )
    else:
        await remove_copies(parts, node, progress.rollout)


async def remove_copies(parts: RolloutParts, host: Node, rollout: str) -> None:
    """Remove the copies. The operator is told if that fails."""
    directory = f"{DIRECTORY}{rollout}"
    try:
        await _do(parts, host, "rm", "-rf", "--", directory)
    except OperatorError as error:
        parts.tell(f"remove {directory} on {host.host} by hand: copies of property files are in it ({error})")


def wanted(node: Node, text: str, settings: ModeSettings) -> str:
    """The file as it is in the migration. The file of a broker in KRaft mode stays as it is."""
    if node.role is NodeKind.CONTROLLER:
        return rewritten(node, text, FileMode.CONTROLLER_MIGRATING, settings)
    if file_mode(node.role, parsed(node, text)) is FileMode.BROKER_KRAFT:
        return text
    return rewritten(node, text, FileMode.BROKER_MIGRATING, settings)


def elsewhere(text: str, below: str) -> str:
    """The file of a node on another host, with its directories below ``below``: a directory of the same name here is
    not the node's."""
    properties = parse_properties(text)
    found = {key: entries_of(properties[key]) for key in DIRECTORIES if properties.get(key)}
    moved = {
        key: ",".join(f"{below}{path}" if path.startswith("/") else path for path in it) for key, it in found.items()
    }
    return with_values(text, moved)


def _copy_of(node: Node, directory: str) -> str:
    return f"{directory}/{node.role.value}-{node.node_id}.properties"


def _shares_disk(node: Node, host: Node) -> bool:
    return (node.host, node.variables.get("pod")) == (host.host, host.variables.get("pod"))


async def _do(parts: RolloutParts, host: Node, *words: str) -> None:
    output = await parts.executor.run(host, words, seconds=SECONDS)
    if output.exit_code:
        raise OperatorError(
            f"property files cannot be copied for preflight: {words[0]} ended with exit code {output.exit_code}",
            where=f"{host.place}: {DIRECTORY}...",
            remedy="See that the user of the service may write to /tmp there; then 'migrator rollout resume'",
        )
