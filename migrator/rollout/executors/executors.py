"""Touches the nodes of an inventory: each by the command templates of its executor, bounded in time and output.

A node's commands are those of its executor's preset, unless the inventory words them. No value and no file content ever
becomes part of a program: values are whole arguments, contents travel by standard input and output.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath

from migrator.errors import OperatorError
from migrator.log.files import NewFile
from migrator.observe.printable import printable
from migrator.rollout.executors.bounded import CommandTimeoutError, Ended, Incoming, Memory, TooLargeError, run_bounded
from migrator.rollout.executors.presets import (
    PRESETS,
    RUNNING,
    UNREACHABLE,
    Pod,
    TemplateError,
    Values,
    check_value,
    render,
)
from migrator.rollout.executors.scripts import (
    CUT_OFF,
    MAY_NOT_LOOK,
    NO_SUCH_FILE,
    NO_SUCH_UNIT,
    NOT_AS_ROOT,
    NOT_KEPT,
    NOT_NAMED,
    NOT_REGULAR,
    OTHER_DIGEST,
    READ_GROWING,
    SCRIPTS,
    head_of,
)
from migrator.rollout.meanwhile import Meanwhile
from migrator.rollout.nodes import ExecutorChoice, Node
from migrator.rollout.plan.modes import digest
from migrator.rollout.ports import (
    ExecutorError,
    FileChangedError,
    HostUnreachableError,
    NotRegularError,
    Output,
    PlaceAwayError,
    PlaceSeen,
    Trial,
)

READ_MAX = 1 << 20
"""Bytes of a file that is held in memory. Property files have some thousand bytes. A larger file on one of many hosts
must not take the memory and time of the others."""
FETCH_MAX = 1 << 36
"""Bytes of a file that goes to the disk: many times ``metadata.log.segment.bytes`` (1 GiB by default)."""
OUTPUT_MAX = 1 << 22
INCARNATION_MAX = 200
"""Characters of an incarnation, because the journal keeps it."""
SHOWN_LINES, SHOWN_CHARS = 8, 1_000  # of what a host said last
READ_TRIES = 3
ABSENT = "absent"
"""Stands for the digest of a file that does not exist."""
NO_DIGEST = "0" * 64  # no content has it
OWN = ("host", "name", "node_id", "path", "words", "expected", "wanted", "backup", "python", *SCRIPTS)
"""Names that no variable of an inventory may take."""
ACTIONS = ("read", "write", "run", "incarnation")
PROCESS = ("stop", "start", "restart")
"""Actions whose command may print secrets of a node, such as its settings. The output of the inventory's own command is
not shown."""
IN_PLACE = ("read", "write", "copy", "run")
"""Actions that run in the place of a node, such as its pod. Each may be repeated."""
NO_PLACE = 1
"""kubectl's exit code when the pod is not there; a command in the pod may also end with it."""
TAKE_DIGESTS = ("write", "copy")
"""Actions whose scripts read digests from standard input before the content."""
POLL_SECONDS = 0.5
SAY_SECONDS = 30.0
"""The longest time that the operator waits for a command without a line about it."""
LOOK = "look at"
SEE_POD = "See 'kubectl describe' of the pod and its StatefulSet. Once the pod runs, 'migrator rollout resume' goes on"
OWN_WORDS = ("read", "stop", "start", "restart", "incarnation")
"""Actions whose words must differ between two nodes. With the same words, one node would be touched instead of the
other."""
OWN_WORDS_OF_SUCCESSOR = ("read", "start")
"""The same between our controller and Kafka's that takes over. The two may share a place, because they never run
together."""
FAILURES_OF_SCRIPTS = {
    NOT_KEPT: (
        "mode, owner, access list (ACL) or SELinux context of the file cannot be kept",
        "Let the executor's user own it, or use sudo. An access list needs the cp of GNU coreutils on the host",
    ),
    NO_SUCH_UNIT: ("systemd does not know the unit", "Correct 'unit' in the inventory"),
    NOT_NAMED: (
        "the unit runs, or may run, and systemd names no process of it",
        "See 'systemctl status' there; the unit needs a process that systemd follows (Type=simple, or PIDFile)",
    ),
    MAY_NOT_LOOK: ("the directory may not be looked into", "Give the executor's user the right to it, or use sudo"),
    NOT_REGULAR: ("the path is not a regular file", "Correct the path in the inventory"),
    NOT_AS_ROOT: (
        "root touches no file that another user could replace by a link, and with the rights of that user it failed",
        "Give the file to the owner of the directory, or the directory to root, and let nobody else write to it",
    ),
    CUT_OFF: ("the content did not arrive whole; nothing was changed", "Try again with 'migrator rollout resume'"),
}
WORDED = "See 'commands' of the executor in the inventory"


def refuse_elsewhere(choices: Mapping[str, ExecutorChoice], nodes: Iterable[Node]) -> None:
    """:raises OperatorError: an executor works on this machine only, but its node is on another one."""
    this_machine = ("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn())
    for node in nodes:
        choice = choices[node.executor]
        if choice.preset in PRESETS and PRESETS[choice.preset].here and node.host not in this_machine:
            what = f"{choice.preset} touches this machine, and {node.name} is on {node.host}"
            remedy = "Name another executor for this node, or correct its host"
            raise OperatorError(what, where=f"executors.{choice.name}", remedy=remedy)


def _waited_for(node: Node, action: str, more: Values | None = None) -> str:
    """The name of a command, for a line about it: of a long one, the program and its first word that is no option."""
    program, *others = (more or {}).get("words") or ("",)
    if not program:
        return f"the command to {action} {node.name}"
    first = [word for word in others[:1] if not word.startswith("-")]
    return f"'{' '.join((PurePath(program).name, *first))}' of {node.name}"


class NodeExecutor:
    """All nodes of an inventory behind one interface (`migrator.rollout.ports.Executor`).

    :param tell: is called every `SAY_SECONDS` with the command that is waited for.
    :raises OperatorError: a preset is unknown, a node lacks a command or a variable, or two nodes would be touched by
        the same words.
    """

    def __init__(
        self,
        choices: Mapping[str, ExecutorChoice],
        nodes: Iterable[Node],
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._choices = choices
        self._tell = tell
        touched: dict[tuple[str, ...], Node] = {}
        for node in nodes:
            for action, words in self._check(node).items():
                if action in OWN_WORDS:
                    self._refuse_same(action, touched.setdefault((action, *words), node), node)

    async def read(self, node: Node, path: str) -> bytes | None:
        memory = Memory()
        return bytes(memory.content) if await self._receive(node, path, Incoming(memory, READ_MAX)) else None

    async def fetch(self, node: Node, path: str, file: Path, *, seconds: float) -> bool:
        with NewFile(file) as new:
            found = await self._receive(
                node, path, Incoming(new, FETCH_MAX), seconds=seconds, more={"read_script": READ_GROWING}
            )
            if found:
                await asyncio.to_thread(new.put)
        return found

    async def _receive(
        self, node: Node, path: str, incoming: Incoming, *, seconds: float = 0, more: Values | None = None
    ) -> bool:
        """Returns whether the file exists; then it has arrived completely."""
        for _ in range(READ_TRIES):
            ended = await self._run(node, "read", path, seconds=seconds, sink=incoming, more=more)
            if ended.exit_code == NO_SUCH_FILE:
                return False
            self._raise_unless_done(node, "read", ended, path)
            if not ended.whole:
                raise ExecutorError("what was read of it did not arrive whole", where=node.at(path), remedy=WORDED)
            if incoming.is_whole():
                return True
        what = "what was read of it has another digest than the file"
        raise ExecutorError(what, where=node.at(path), remedy="Another program writes it, or it arrives cut off")

    async def write(self, node: Node, path: str, content: bytes, *, expected: str | None, backup: str) -> None:
        ended = await self._send(node, "write", path, content, expected=expected or ABSENT, backup=backup)
        if ended.exit_code == OTHER_DIGEST:
            raise FileChangedError(
                "the file was changed since this rollout looked at it; nothing was written",
                where=node.at(path),
                remedy="Look at it. 'migrator rollout resume' goes on with the file as it is now",
            )
        self._raise_unless_done(node, "write", ended, path)

    async def copy(self, node: Node, path: str, content: bytes) -> None:
        ended = await self._send(node, "copy", path, content, expected=ABSENT)
        if ended.exit_code == OTHER_DIGEST:
            raise ExecutorError("something is there already", where=node.at(path), remedy="Look at it; remove it")
        self._raise_unless_done(node, "copy", ended, path)

    async def _send(self, node: Node, action: str, path: str, content: bytes, *, expected: str, **more: str) -> Ended:
        """Our scripts read the digests from standard input. A command of the inventory gets them as arguments, if its
        template names them."""
        wanted = digest(content)
        values = {"expected": expected, "wanted": wanted, **more}
        head = head_of(expected, wanted) if self._has_script(node, action, path, values) else b""
        return await self._run(node, action, path, stdin=head + content, more=values)

    def _has_script(self, node: Node, action: str, path: str, values: Values) -> bool:
        """Whether the command is our script, or carries it to the node."""
        template, script = self._commands(node).get(action), SCRIPTS[f"{action}_script"]
        words = () if template is None else self._words(node, template, path, values)
        return any(script in word or shlex.quote(script) in word for word in words)

    async def stop(self, node: Node) -> None:
        await self._do(node, "stop")

    async def start(self, node: Node) -> None:
        await self._do(node, "start")

    async def restart(self, node: Node) -> None:
        await self._do(node, "restart")

    def stops_and_starts(self, node: Node) -> bool:
        return {"stop", "start"} <= self._commands(node).keys()

    async def incarnation(self, node: Node) -> str | None:
        """The output of the node's command; None when it prints nothing, because nothing runs."""
        ended = await self._run(node, "incarnation", node.properties)
        self._raise_unless_done(node, "incarnation", ended, "")
        found = ended.output.decode("utf-8", "replace").split()
        if len(found) > 1:
            what = "the command that tells the incarnation prints more than one word"
            raise ExecutorError(what, where=node.place, remedy=WORDED)
        if found and (len(found[0]) > INCARNATION_MAX or not found[0].isprintable()):
            what = f"what tells the incarnation is no word of at most {INCARNATION_MAX} printable characters"
            raise ExecutorError(what, where=node.place, remedy=WORDED)
        return found[0] if found else None

    async def log_of(self, node: Node) -> Output | None:
        if "log" not in self._commands(node):
            return None
        ended = await self._run(node, "log", node.properties)
        self._raise_unless_done(node, "log", ended, "")
        return _output(ended)

    async def place_of(self, node: Node) -> PlaceSeen | None:
        choice = self._choices[node.executor]
        preset = PRESETS[choice.preset]
        if not preset.there:
            return None
        ended = await self._end_of(node, LOOK, self._words(node, preset.there, node.properties), seconds=choice.seconds)
        self._raise_unless_done(node, LOOK, ended, "")
        pod = Pod.of(ended.output)
        return PlaceSeen(f"the {self._place(node)} is {pod}", pod.loops) if pod.ails else None

    def _place(self, node: Node) -> str:
        (place,) = self._words(node, f"'{PRESETS[self._choices[node.executor].preset].place}'", node.properties)
        return place

    async def trial(self, node: Node) -> Trial:
        choice = self._choices[node.executor]
        attempts, untried = [], [action for action in PROCESS if action in choice.commands]
        used = ("stop", "start") if self.stops_and_starts(node) else ("restart",)
        if self._has_script(node, "write", node.properties, {"expected": ABSENT, "wanted": ABSENT, "backup": ""}):
            attempts.append(partial(self._try_to_write, node))
        else:
            untried.append("write")
        if (template := PRESETS[choice.preset].trial) and {*used}.isdisjoint(untried):
            attempts.append(partial(self._try_to_stop, node, self._words(node, template, node.properties)))
        elif template:  # it needs the rights and variables of all that are used, and these may have others
            untried += [action for action in used if action not in untried]
        faults = []
        for attempt in attempts:  # one by one: the way to a host takes few connections at once
            try:
                await attempt()
            except ExecutorError as fault:
                faults.append(fault)
        return Trial(tuple(faults), tuple(untried))

    async def _try_to_write(self, node: Node) -> None:
        """Send what the file has now, with a digest that no content has, as if it had been cut off: the script does
        everything up to the comparison, which is the last thing before it puts the new file in its place."""
        content = await self.read(node, path := node.properties)
        more = {"expected": digest(content) or ABSENT, "wanted": NO_DIGEST, "backup": ""}
        head = head_of(more["expected"], NO_DIGEST)
        ended = await self._run(node, "write", path, stdin=head + (content or b""), more=more)
        if ended.exit_code not in (CUT_OFF, OTHER_DIGEST):  # another process may be changing it
            self._raise_unless_done(node, "write", ended, path)

    async def _try_to_stop(self, node: Node, words: Sequence[str]) -> None:
        ended = await self._end_of(node, "try", words, seconds=self._choices[node.executor].seconds)
        if ended.exit_code:
            answer, *more = ended.output.decode("utf-8", "replace").strip().split("\n")
            said = _said(ended) or ("" if more else printable(answer)[:SHOWN_CHARS])  # a unit's file may have secrets
            raise ExecutorError(
                f"a trial of the right to stop and start it failed: {said or f'exit code {ended.exit_code}'}",
                where=node.place,
                remedy=f"Correct the inventory, or give the right; the trial was: {shlex.join(words)}",
            )

    async def run(self, node: Node, words: Sequence[str], *, seconds: float) -> Output:
        ended = await self._run(node, "run", node.properties, seconds=seconds, more={"words": tuple(words)})
        return _output(ended)

    async def _do(self, node: Node, action: str) -> None:
        self._raise_unless_done(node, action, await self._run(node, action, node.properties), "")

    async def _run(
        self,
        node: Node,
        action: str,
        path: str,
        *,
        stdin: bytes | None = None,
        seconds: float = 0,
        sink: Incoming | None = None,
        more: Values | None = None,
    ) -> Ended:
        template = self._commands(node).get(action)
        if template is None:
            raise ExecutorError(f"the inventory has no command to {action} it", where=node.place, remedy=WORDED)
        words = self._words(node, template, path, more)
        what = _waited_for(node, action, more)
        seconds = seconds or self._choices[node.executor].seconds
        try:
            ended = await self._end_of(node, action, words, what, stdin=stdin, seconds=seconds, sink=sink)
            if ended.exit_code == NO_PLACE and await self._is_there_again(node, action):
                ended = await self._end_of(node, action, words, what, stdin=stdin, seconds=seconds, sink=sink)
        except TooLargeError as error:
            limit = 0 if sink is None else sink.limit >> 20
            what = f"it is larger than {limit} MiB, the most that is read of it"
            raise ExecutorError(what, where=node.at(path), remedy="See what lies there") from error
        return ended

    def _words(self, node: Node, template: str, path: str, more: Values | None = None) -> Sequence[str]:
        try:
            return render(template, self._values(node, path, more or {}))
        except TemplateError as error:
            raise ExecutorError(str(error), where=node.at(path), remedy=WORDED) from error

    async def _is_there_again(self, node: Node, action: str) -> bool:
        """Wait for a pod that was deleted, and comes back by itself.

        :returns: whether the action should be tried again.
        :raises PlaceAwayError: the pod does not come back.
        """
        choice = self._choices[node.executor]
        preset, seconds = PRESETS[choice.preset], choice.seconds
        if not preset.there or action not in IN_PLACE or action in choice.commands:
            return False
        words, looks, pod = self._words(node, preset.there, node.properties), 0, Pod()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while pod.phase != RUNNING:
                    await asyncio.sleep(POLL_SECONDS if looks else 0)
                    ended = await self._end_of(node, LOOK, words, seconds=seconds)
                    self._raise_unless_done(node, LOOK, ended, "")
                    pod, looks = Pod.of(ended.output), looks + 1
        if pod.loops:
            raise PlaceAwayError(f"the {self._place(node)} is {pod}", where=node.place, remedy=SEE_POD)
        if pod.phase == RUNNING:
            return looks > 1 or action != "run"
        what = f"the {self._place(node)} is still {pod} after {seconds:g} s"
        raise PlaceAwayError(what, where=node.place, remedy=SEE_POD)

    async def _end_of(
        self,
        node: Node,
        action: str,
        words: Sequence[str],
        what: str = "",
        *,
        stdin: bytes | None = None,
        seconds: float,
        sink: Incoming | None = None,
    ) -> Ended:
        program = PurePath(words[0]).name
        waits = f"waits for {what or _waited_for(node, action)} on {node.host}, at most {seconds:g} s in all"
        try:
            async with Meanwhile(self._tell, waits, SAY_SECONDS):
                ended = await run_bounded(words, stdin=stdin, seconds=seconds, output_max=OUTPUT_MAX, sink=sink)
        except OSError as error:
            what = f"{program} cannot be started: {error.strerror or error}"
            raise ExecutorError(what, where=node.place, remedy=WORDED) from error
        except CommandTimeoutError as error:
            raise ExecutorError(
                f"the command to {action} it still ran after {seconds:g} s, and was ended",
                where=node.place,
                remedy="See what it waits for. 'seconds' of the executor is its bound, 'gates.command_seconds' that of "
                "a long command; a process that a start leaves behind must not keep the command's output open",
            ) from error
        if ended.exit_code == UNREACHABLE.get(program):
            what = f"{program} did not reach the host, or lost the connection: {_said(ended)}"
            raise HostUnreachableError(what, where=node.place, remedy="See that this machine reaches the host")
        return ended

    def _raise_unless_done(self, node: Node, action: str, ended: Ended, path: str) -> None:
        if ended.exit_code == 0:
            return
        what, remedy = FAILURES_OF_SCRIPTS.get(
            ended.exit_code, (f"the command to {action} it ended with exit code {ended.exit_code}", WORDED)
        )
        worded = action in PROCESS and action in self._choices[node.executor].commands
        said = "" if worded else _said(ended)
        kind = NotRegularError if ended.exit_code == NOT_REGULAR else ExecutorError
        error = kind(f"{what}: {said}" if said else what, where=node.at(path), remedy=remedy)
        if action in PROCESS:
            error.output = _output(ended)
        raise error

    def _commands(self, node: Node) -> Mapping[str, str]:
        choice = self._choices[node.executor]
        return {**PRESETS[choice.preset].commands, **choice.commands}

    def _values(self, node: Node, path: str, more: Values) -> Values:
        choice = self._choices[node.executor]
        given = {**PRESETS[choice.preset].variables, **choice.variables, **node.variables}
        own = {"host": node.host, "name": node.name, "node_id": str(node.node_id), "path": path}
        for name, text in {**given, **own, **more}.items():
            if name in SCRIPTS:
                continue  # a value of ours that is no name and no path
            for each in (text,) if isinstance(text, str) else text:
                check_value(name, each)
        if not path.startswith("/"):
            raise TemplateError(f"{printable(path)} is no absolute path")
        return {**given, **own, **SCRIPTS, "python": sys.executable, **more}

    def _check(self, node: Node) -> Mapping[str, Sequence[str]]:
        """The words of each action, with placeholders for values that differ from call to call.

        :raises OperatorError: a command of this node cannot be made.
        """
        choice = self._choices[node.executor]
        where = f"executors.{choice.name}"
        preset = PRESETS.get(choice.preset)
        if preset is None:
            raise OperatorError(
                f"there is no preset {printable(choice.preset)}",
                where=where,
                remedy=f"Name one of {', '.join(PRESETS)}",
            )
        commands = self._commands(node)
        missing = [action for action in ACTIONS if action not in commands]
        if not self.stops_and_starts(node) and "restart" not in commands:
            missing.append("stop and start, or restart")
        if missing:
            what = f"no command is there for {', '.join(missing)}"
            raise OperatorError(what, where=where, remedy="Add them to 'commands', or name another preset")
        for action in TAKE_DIGESTS:
            template = commands.get(action, "")
            if f"{{{action}_script" in template and re.search(r"\{(expected|wanted)(!q)?\}", template):
                what = f"{{{action}_script}} takes digests by standard input, and not as {{expected}} and {{wanted}}"
                raise OperatorError(what, where=f"{where}, {action}", remedy="Leave both out of the command")
        taken = sorted({*choice.variables, *node.variables} & set(OWN))
        if taken:
            what = f"{', '.join(taken)}: the rollout gives these itself"
            raise OperatorError(what, where=where, remedy="Give the variable another name")
        stand_in = {"words": ("true",), "expected": ABSENT, "wanted": ABSENT, "backup": ""}
        words = {}
        for action, template in commands.items():
            try:
                words[action] = render(template, self._values(node, node.properties, stand_in))
            except TemplateError as error:
                remedy = f"Correct the command, or add the variable to {node.name} or to the executor"
                raise OperatorError(str(error), where=f"{where}, {action}, {node.name}", remedy=remedy) from error
        return words

    def _refuse_same(self, action: str, other: Node, node: Node) -> None:
        """:raises OperatorError: a command for one of the two nodes would touch the other."""
        succeeds = node.node_id == other.node_id and action not in OWN_WORDS_OF_SUCCESSOR
        if node is other or succeeds:
            return
        template = self._commands(node)[action]
        raise OperatorError(
            f"{other.name} and {node.name} get the same command to {action} them, with the same values: {template}",
            where=f"executors.{node.executor}",
            remedy="Give each node its own property file, and a variable that tells it apart: 'unit' for systemd, "
            "'pod' for a pod, any name for a command of your own",
        )


def _output(ended: Ended) -> Output:
    return Output(ended.exit_code, ended.output.decode("utf-8", "replace"), ended.errors.decode("utf-8", "replace"))


def _said(ended: Ended) -> str:
    """The end of the error output of a failed command. Its standard output is not shown, because it may be a file's
    content."""
    lines = [line.strip() for line in ended.errors.decode("utf-8", "replace").splitlines() if line.strip()]
    said = printable(" / ".join(lines[-SHOWN_LINES:]))
    return said if len(said) <= SHOWN_CHARS else f"...{said[-SHOWN_CHARS:]}"
