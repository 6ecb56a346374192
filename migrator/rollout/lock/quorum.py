"""The lock in the metadata of our quorum, through its leader: over gRPC, a local socket, or a command on its host.

`lock` uses a `QuorumPlace` once ZooKeeper may be gone. The leader compares and writes in one decision, so of two
rollouts one wins. Where no leader can be asked, `QuorumAwayError` says so: nothing is assumed about the lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import orjson

from migrator.errors import ExitCode, OperatorError
from migrator.observe.status import LockAnswer
from migrator.rollout.lock.places import LockEntry, encoded, parsed
from migrator.rollout.nodes import Node
from migrator.rollout.ports import Executor, ExecutorError, QuorumAwayError
from migrator.rpc.find_controller import leading_controller
from migrator.seeing.controllers import ControllerProgram, QuorumSeen

ASK_SECONDS = 10.0
THERE_SECONDS = 30.0
REMOVE_IT = "'migrator quorum rollout-lock' shows it. If nobody needs it, its option --move TEXT \"\" removes it"
Move = tuple[str, str] | None
"""The content that must be there, and the content that shall replace it; "" for nothing. None: only look."""
AskLeader = Callable[[Move], Awaitable[LockAnswer]]


def our_leader(quorum: QuorumSeen | None, nodes: Sequence[Node]) -> Node | None:
    """The controller that leads; None where none was seen to.

    :raises QuorumAwayError: a voter is Kafka's. When it leads, the lock can neither be read nor given back.
    """
    if quorum is None:
        return None
    stock = next((voter for voter in quorum.voters.values() if voter.program is ControllerProgram.STOCK), None)
    if stock is not None:
        what = f"controller {stock.node_id}, which may lead, is Kafka's own and has no place for the lock"
        raise QuorumAwayError(what, where="the quorum")
    return next((node for node in nodes if node.node_id == quorum.leader_id), None)


class QuorumPlace:
    """The quorum as a place of the lock. One call at a time.

    :param ask: asks the leader; raises `QuorumAwayError`.
    """

    where = "the quorum"

    def __init__(self, ask: AskLeader) -> None:
        self._ask = ask
        self._seen = ""

    async def read(self) -> tuple[LockEntry | None, int]:
        """The entry as the quorum has committed it. The version has no meaning here: `move` compares with the last
        read.

        :raises QuorumAwayError: no leader can be asked.
        :raises OperatorError: it is no lock.
        """
        self._seen = (await self._ask(None)).held
        return (parsed(self._seen.encode(), self.where, REMOVE_IT) if self._seen else None), 0

    async def move(self, _before: int, entry: LockEntry | None, /) -> bool:
        """Write the entry, or remove it; False if another client has written since the last read.

        :raises QuorumAwayError: no leader can be asked, or its answer was lost: the next read tells.
        """
        return (await self._ask((self._seen, "" if entry is None else encoded(entry).decode()))).moved


class LeaderLock:
    """Asks the leader.

    :param files: property files through which a leader is found, as for its status.
    :param executor: runs the command on the leader's host, when no leader is reached otherwise.
    :param leader: `our_leader` of the last look.
    :param program: the command on the controllers' hosts.
    """

    def __init__(
        self, files: Sequence[Path], executor: Executor, leader: Callable[[], Node | None], program: str
    ) -> None:
        self._files = files
        self._executor = executor
        self._leader = leader
        self._program = program

    async def ask(self, move: Move) -> LockAnswer:
        """Read or write the lock.

        :raises QuorumAwayError: no leader could be asked.
        """
        why, node = "no controller is known to lead", self._leader()
        for file in self._files:
            try:
                async with asyncio.timeout(ASK_SECONDS), leading_controller(file, None) as client:
                    return await client.rollout_lock(move)
            except (OperatorError, TimeoutError) as error:
                why = error.what if isinstance(error, OperatorError) else f"no answer within {ASK_SECONDS:.0f} s"
        if node is not None:
            words = [self._program, "quorum", "rollout-lock", "-c", node.properties]
            words += [] if move is None else ["--move", *move]
            try:
                output = await self._executor.run(node, words, seconds=THERE_SECONDS)
                if output.exit_code == ExitCode.OK:
                    return answer_of(output.text, node.place)
                why = f"'{self._program} quorum rollout-lock' failed on {node.host}"
            except ExecutorError as error:
                why = error.what
        raise QuorumAwayError(
            f"the quorum cannot be asked for the lock: {why}",
            where="the quorum",
            remedy="See that the controllers run, and how this machine reaches them ('access' of the inventory)",
        )


def answer_of(text: str, where: str) -> LockAnswer:
    """Parse the output of `migrator quorum rollout-lock`.

    :param where: the host on which it ran.
    :raises QuorumAwayError: it is something else.
    """
    try:
        content = orjson.loads(text)
        return LockAnswer(str(content["held"]), moved=bool(content["moved"]))
    except (orjson.JSONDecodeError, LookupError, TypeError) as error:
        raise QuorumAwayError(
            "the answer about the lock is malformed",
            where=where,
            remedy="See which program runs there as 'program' of the inventory",
        ) from error
