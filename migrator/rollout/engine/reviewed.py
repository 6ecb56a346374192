"""The plan of a rollout as a document: people review it, and `apply --plan` does what was reviewed.

The document is JSON with sorted keys: the same plan of the same cluster is the same document. It has no secret: values
that may be secrets are hidden, and of a whole file or a part of the inventory it has a digest that is slow to compute,
so that a guessed password cannot be tried quickly.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from migrator.config.properties import encoded
from migrator.errors import OperatorError
from migrator.log.files import write_durably
from migrator.observe.printable import json_text, printable
from migrator.rollout.engine.preview import PreviewFacts, StepPreview, StepState
from migrator.rollout.inventory import Inventory
from migrator.rollout.journal.progress import Progress
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.modes import digest
from migrator.rollout.plan.plan import canary_steps
from migrator.rollout.plan.steps import Act, Direction, Job
from migrator.values import value

KIND: Final = "plan of migrator rollout"
VERSION: Final = 1
"""The version of the document's format."""
_PARTS: Final = {
    "cluster": str, "direction": str, "canary": str, "inventory": dict, "files": dict, "steps": list,
}  # fmt: skip
"""The keys that every document has."""
BYTES_MAX: Final = 256 << 20
"""The most bytes of a document that is read."""
_NO_PLAN = "this is no plan of 'migrator rollout plan --out'"
SHOWN = 12
"""How many characters of a digest are shown to people."""
_SCRYPT = {"n": 1 << 14, "r": 8, "p": 1}
"""About 16 MiB and 0.05 s for a digest (RFC 7914)."""
_HEAD = {
    "cluster_id": "the id of the cluster",
    "direction": "the direction",
    "canary": "the canary",
    "release_version": "the metadata.version of the controllers",
    "zookeeper": "the address of ZooKeeper",
    "gates": "the times of the gates",
}
_WORDS = {
    "controllers": "the controllers",
    "brokers": "the brokers, or their settings",
    "executors": "the executors",
    "steps": "the steps that are left out",
    "handover": "the release that takes over",
}
"""Parts of the inventory."""
_BEGUN = (StepState.DONE.value, StepState.UNDER_WAY.value)


@value
class Reviewed:
    """The reviewed plan that binds a rollout. ``plan``: the digest of the reviewed document. ``files``: by node, the
    SHA-256 of its property file as it was compared with the document. ``accepted``: how many differences a person has
    accepted."""

    plan: str
    files: Mapping[str, str]
    accepted: int = 0


def _kept(state: Path, plan: str) -> Path:
    return state / f"reviewed-{plan[:SHOWN]}.json"


def keep_reviewed(state: Path, reviewed: Mapping[str, Any], accepted: Sequence[str]) -> None:
    """Keep a reviewed plan beside the journal, so that later commands are held to it, too.

    :param accepted: the differences from it that a person has accepted.
    :raises StorageError: the disk refuses.
    """
    content = {"plan": reviewed, "accepted": accepted}
    write_durably(_kept(state, str(reviewed["digest"])), json_text(content, indent=True).encode())


def read_reviewed(state: Path, plan: str) -> tuple[dict[str, Any], list[str]] | None:
    """The plan that `keep_reviewed` has kept; None if there is none, or it was changed since.

    :param plan: the digest of the plan, as the journal has it.
    """
    with suppress(OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        kept = json.loads(_kept(state, plan).read_bytes())
        content, accepted = kept["plan"], list(map(str, kept["accepted"]))
        if content.pop("digest") == plan == _digest(content):
            return {**content, "digest": plan}, accepted
    return None


def document(
    parts: RolloutParts,
    direction: Direction,
    canary: str,
    shown: Sequence[StepPreview],
    facts: PreviewFacts,
    level: str,
) -> dict[str, Any]:
    """
    :param level: the metadata.version of the controllers; "" unknown.
    """
    inventory, times = parts.inventory, parts.inventory.times
    salt = f"{inventory.cluster} {facts.seen.cluster_id}"
    waits = canary_steps([one.step for one in shown], canary)
    content: dict[str, Any] = {
        "kind": KIND,
        "version": VERSION,
        "cluster": inventory.cluster,
        "cluster_id": facts.seen.cluster_id,
        "direction": direction.value,
        "canary": canary,
        "release_version": level,
        "zookeeper": parts.zookeeper_connect,
        "gates": {"seconds": times.gate, "soak_seconds": times.soak, "verify_seconds": times.verify},
        "inventory": {name: _slow(said, f"{salt} {name}") for name, said in _said(inventory).items()},
        "files": {
            node.name: {
                "host": node.host,
                "path": node.properties,
                "digest": _slow(facts.texts[node.name], f"{salt} {node.name}"),
            }
            for node in inventory.nodes
        },
        "steps": [{**one.as_json(), "asks": _asks(one, inventory, waits)} for one in shown],
    }
    return {**content, "digest": _digest(content)}


def _said(inventory: Inventory) -> dict[str, str]:
    """The inventory, by part, in one text each."""
    parts: dict[str, object] = {
        "controllers": inventory.controllers,
        "brokers": inventory.brokers,
        "executors": sorted(inventory.executors.items()),
        "steps": inventory.left_out,
        "handover": inventory.handover,
    }
    return {name: repr(said) for name, said in parts.items()}


def _asks(one: StepPreview, inventory: Inventory, waits: Collection[str]) -> list[str]:
    if one.state in (StepState.DONE, StepState.NOT_NEEDED):
        return []
    asked = [f"End the migration of {inventory.cluster}?"] if Act.CONFIRM in one.step.acts else []
    asked += ["Go on in spite of the warnings that an operator decides about?"] if one.step.job is Job.PREFLIGHT else []
    return asked + (["the rollout waits after this step until 'migrator rollout resume'"] * (one.step.name in waits))


def _slow(text: str, salt: str) -> str:
    return hashlib.scrypt(text.encode("utf-8", "replace"), salt=salt.encode(), dklen=32, **_SCRYPT).hex()


def _digest(content: Mapping[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True).encode())


def text_of_document(content: Mapping[str, Any]) -> str:
    return json_text(dict(sorted(content.items())), indent=True) + "\n"


def read_document(path: Path) -> dict[str, Any]:
    """
    :raises OperatorError: the file cannot be read, is no plan of this release, was changed, or leads back.
    """
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(BYTES_MAX))
    except OSError as error:
        raise _unusable(f"the plan cannot be read: {error.strerror or error}", path) from error
    except (ValueError, RecursionError) as error:
        raise _unusable(_NO_PLAN, path) from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise _unusable(_NO_PLAN, path)
    if content.get("version") != VERSION:
        raise _unusable(f"the plan has the format {content.get('version')}, and this release knows {VERSION}", path)
    if content.pop("digest", None) != (found := _digest(content)):
        raise _unusable("the plan was changed after 'migrator rollout plan' made it", path)
    if not _is_whole(content):
        raise _unusable(_NO_PLAN, path)
    if content["direction"] != Direction.FORWARD:
        remedy = "'migrator rollout rollback' shows the way back, and asks before it goes"
        raise OperatorError("this plan leads back, and 'apply' goes forward", where=str(path), remedy=remedy)
    return {**content, "digest": found}


def _is_whole(content: Mapping[str, Any]) -> bool:
    """Whether a document has all of its parts. A right digest does not prove it: an editor can compute that, too."""
    parts = all(isinstance(content.get(name), kind) for name, kind in _PARTS.items())
    return parts and all(isinstance(step, dict) and isinstance(step.get("step"), str) for step in content["steps"])


def _unusable(what: str, path: Path) -> OperatorError:
    return OperatorError(what, where=str(path), remedy="Make it anew: 'migrator rollout plan --out FILE'")


def known_files(progress: Progress, plan: str, facts: PreviewFacts) -> set[str]:
    """The nodes whose files the journal answers for: the rollout under way does this plan, and it has written, or last
    seen, these files as they are now.

    :param plan: the digest of the plan.
    """
    if not is_of(progress, plan):
        return set()
    return {name for name, text in facts.texts.items() if progress.knows(name, digest(encoded(text)))}


def is_of(progress: Progress, plan: str) -> bool:
    """Whether the rollout under way does the plan with this digest."""
    return bool(progress.rollout) and not progress.closed and progress.plan == plan


def differences(
    reviewed: Mapping[str, Any], now: Mapping[str, Any], *, known: Collection[str] = (), under_way: bool = False
) -> list[str]:
    """A sentence for each difference between a reviewed plan and what would be done now; empty if there is none. The
    order of steps is none: inventory and canary decide it, and beside them, as documented, who leads or is down.

    :param known: nodes whose files may differ, because this rollout has changed them.
    :param under_way: whether a rollout does this plan already: then its steps may be done or under way.
    """
    found = (*_of_inventory(reviewed, now), *_of_files(reviewed["files"], now["files"], known))
    steps = _of_steps(reviewed["steps"], now["steps"], _BEGUN if under_way else ())
    return [printable(line) for line in (*found, *steps)]


def _of_inventory(reviewed: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key, words in _HEAD.items():
        if reviewed.get(key) != now.get(key):
            yield f"{words}: reviewed {_said_of(reviewed.get(key))}; now {_said_of(now.get(key))}"
    for key, words in _WORDS.items():
        if reviewed["inventory"].get(key) != now["inventory"].get(key):
            yield f"the inventory says something else of {words} than when the plan was made"


def _of_files(before: Mapping[str, Any], after: Mapping[str, Any], known: Collection[str]) -> Iterator[str]:
    for name in before:
        if name not in after:
            yield f"{name}: in the reviewed plan, and not there now"
    for name, file in after.items():
        where = f"{name} on {file['host']}: {file['path']}"
        if name not in before:
            yield f"{where}: not in the reviewed plan"
        elif before[name] != file and name not in known:
            yield f"{where}: the file, or its place, was changed since the plan was made"


def _of_steps(
    reviewed: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], begun: Collection[str]
) -> Iterator[str]:
    old, new = ({step["step"]: step for step in steps} for steps in (reviewed, now))
    for name in (name for name in old if name not in new):
        yield f"step {name}: in the reviewed plan, and not now"
    left = [name for name, step in new.items() if step["state"] not in begun]
    for name in left:
        if name not in old:
            yield f"step {name}: not in the reviewed plan"
            continue
        for key, found in new[name].items():
            if (was := old[name].get(key)) != found:
                yield f"step {name}: {key.replace('_', ' ')}: reviewed {_said_of(was)}; now {_said_of(found)}"


def _said_of(found: Any) -> str:
    if isinstance(found, dict):
        return ", ".join(f"{key}={_said_of(each)}" for key, each in found.items())
    if isinstance(found, list):
        return "; ".join(map(str, found)) or "nothing"
    return "nothing" if found in (None, "") else str(found)
