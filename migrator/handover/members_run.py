"""Carries out a hand-over by membership: look, take one step, look again, until the voters are the wanted ones.

A run depends only on what it can see, so a hand-over that was killed continues when the command is run again.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.clock import wall_ms
from migrator.config.endpoints import parse_bootstrap_servers, parse_voters
from migrator.config.keys import SERVERS, VOTERS
from migrator.config.load import load_settings
from migrator.config.settings import Settings
from migrator.config.types import split_list
from migrator.controller.kraft_upgrade import reads_voters
from migrator.controller.quorum_target import target_of, target_text
from migrator.errors import OperatorError, PeerError
from migrator.handover.execute import BEGUN, PATIENCE_SECONDS, POLL_SECONDS, SEEN, journal_beside
from migrator.handover.members import Addresses, ObservedBroker, ObservedMembers, refusals, with_obstacles
from migrator.image.model import BrokerRegistration, ControllerRegistration
from migrator.observe.journal import Journal
from migrator.raft.planner import (
    Add,
    ClearTarget,
    PlannerView,
    Remove,
    RemoveSelf,
    Replica,
    Step,
    Wait,
    described,
    plan,
)
from migrator.raft.transport import TransportError
from migrator.raft.voter_set import STATIC_RANGE, ReplicaKey, VoterSet
from migrator.records.control import DynamicVoter
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.seeing.quorum import QuorumEyes, QuorumLook
from migrator.wire.broker_settings import BROKER
from migrator.wire.client import KafkaClient
from migrator.wire.listener_settings import broker_security
from migrator.wire.schemas import ADD_RAFT_VOTER, DESCRIBE_CONFIGS, REMOVE_RAFT_VOTER, build, request_type

ASK_SECONDS = 5.0
ATTEMPTS, AGAIN_SECONDS = 3, 1.0
"""The number of requests to a broker without an answer, and the pause after each, in seconds."""
CHANGE_SECONDS = 10.0
"""Time for a change of voters: the leader answers after the change is committed."""
FINAL = frozenset(
    {ErrorCode.unsupported_version, ErrorCode.cluster_authorization_failed, ErrorCode.inconsistent_cluster_id}
)
"""Errors that a repeated request would get again."""
WHERE_CONTROLLERS_ARE = (SERVERS, VOTERS)

HostPort = tuple[str, int]


class MembersSurvey:
    """
    :param settings: of a controller; they say where the controllers are, and how to log in to them and to brokers.
    :param wanted: the ids of the wanted voters.
    """

    def __init__(self, settings: Settings, wanted: Iterable[int]) -> None:
        self._settings = settings
        self._wanted = tuple(ReplicaKey(node_id) for node_id in sorted(set(wanted)))
        self._eyes = QuorumEyes(settings)

    async def look(self) -> ObservedMembers | None:
        """The cluster now; None while no controller leads. A replica has caught up when it has everything that was
        committed at the look before: in a healthy quorum some replica is nearly always one record behind the newest
        one."""
        look = await self._eyes.look_and_close()
        if look.described is None or look.image is None:
            return None
        image = look.image
        controllers = {
            node_id: await _addresses(_places(each, self._listener))
            for node_id, each in image.cluster.controllers.items()
        }
        target = target_of(image)
        return ObservedMembers(
            planner=with_obstacles(self._view(look), controllers),
            epoch=look.leader_epoch,
            is_finished=not image.features.zk_migration_state.is_under_way,
            level=image.features.metadata_version,
            kraft_version=_kraft_version(look.described),
            target=None if target is None else target_text(target),
            controllers=controllers,
            brokers=tuple(await asyncio.gather(*map(self._broker, image.cluster.brokers.values()))),
        )

    async def add(self, key: ReplicaKey) -> str:
        """Make a controller a voter. Returns why this does not work now, or "".

        :raises OperatorError: the leader refuses, and would refuse again.
        """
        look = await self._eyes.look_and_close()
        registration = None if look.image is None else look.image.cluster.controllers.get(key.node_id)
        if look.described is None or registration is None:
            return "nobody leads, or the controller has not registered"
        listeners = tuple({"name": at.name, "host": at.host, "port": at.port} for at in registration.listeners)
        timeout = dt.timedelta(seconds=CHANGE_SECONDS)
        return await self._change(look, ADD_RAFT_VOTER, key, timeout=timeout, listeners=listeners)

    async def remove(self, key: ReplicaKey) -> str:
        """Remove a voter; answers and errors as `add`."""
        look = await self._eyes.look_and_close()
        if look.described is None:
            return "nobody leads"
        return await self._change(look, REMOVE_RAFT_VOTER, key)

    async def _change(self, look: QuorumLook, api_key: int, key: ReplicaKey, **fields: Any) -> str:
        leader = int(look.described.leader_id)
        if leader not in look.addresses:
            return f"the address of controller {leader}, the leader, is unknown"
        request = build(
            request_type(api_key, 0),
            cluster_id=await self._eyes.cluster_id(),
            voter_id=key.node_id,
            voter_directory_id=uuid.UUID(bytes=key.directory_id),
            **fields,
        )
        answer = await self._eyes.ask(look.addresses[leader], request, CHANGE_SECONDS + ASK_SECONDS)
        if answer is None:
            return "the leader did not answer"
        if answer.error_code is ErrorCode.none:
            return ""
        why = f"{answer.error_code.name}: {answer.error_message or 'no reason given'}"
        if answer.error_code in FINAL:
            raise OperatorError(
                f"the leader refuses to change the voters: {why}",
                where=f"controller {leader}",
                remedy="See the log of this controller, and 'migrator quorum describe'",
            )
        return why

    @property
    def _listener(self) -> str:
        return self._settings.controller_listeners[0]

    def _view(self, look: QuorumLook) -> PlannerView:
        partition, before = look.described, look.committed_before
        rows = (*partition.current_voters, *partition.observers)
        now = max(row.last_fetch_timestamp for row in rows)
        committed = min(before, partition.high_watermark) if before >= 0 else partition.high_watermark
        replicas = tuple(self._replica(row, now, committed) for row in rows)
        voters = VoterSet.of(
            DynamicVoter(row.replica_id, _directory(row), (), STATIC_RANGE) for row in partition.current_voters
        )
        return PlannerView(
            own=voters.key(partition.leader_id), is_leader=True, voters=voters, target=self._wanted, replicas=replicas
        )

    def _replica(self, row: Any, now: int, committed: int) -> Replica:
        is_live = now - row.last_fetch_timestamp <= self._settings.controller_quorum_fetch_timeout_ms
        is_caught_up = is_live and row.log_end_offset >= committed
        return Replica(ReplicaKey(row.replica_id, _directory(row)), row.log_end_offset, is_live, is_caught_up)

    async def _broker(self, registration: BrokerRegistration) -> ObservedBroker:
        """Ask a broker for its own configuration, which no other node knows."""
        reads = reads_voters(registration.features)
        name = self._settings.broker_rpc_listener
        at = next((at for at in registration.listeners if at.name == name), None)
        if at is None or self._settings.broker_rpc_protocol is None:
            where = "this property file does not say how to log in there"
            trouble = f"it has no listener {name}" if at is None else f"listener {name}: {where}"
            return ObservedBroker(registration.broker_id, reads, frozenset(), trouble)
        resource = {
            "resource_type": BROKER,
            "resource_name": str(registration.broker_id),
            "configuration_keys": WHERE_CONTROLLERS_ARE,
        }
        request = build(
            request_type(DESCRIBE_CONFIGS, 4),
            resources=(resource,),
            include_synonyms=False,
            include_documentation=False,
        )
        answer = await self._ask_broker((at.host, at.port), request)
        if answer is None:
            return ObservedBroker(registration.broker_id, reads, frozenset(), f"no answer at {at.host}:{at.port}")
        (found,) = answer.results
        if found.error_code is not ErrorCode.none:
            return ObservedBroker(registration.broker_id, reads, frozenset(), found.error_code.name)
        texts = {config.name: config.value or "" for config in found.configs}
        return ObservedBroker(registration.broker_id, reads, await _addresses(_configured(texts)))

    async def _ask_broker(self, at: HostPort, request: Any) -> Any:
        """The answer; None after `ATTEMPTS` without one. A broker that is asked in vain once may just be starting."""
        client = KafkaClient(*at, "handover", security=broker_security(self._settings))
        try:
            for _ in range(ATTEMPTS):
                with suppress(TransportError, PeerError):
                    return await client.request(request, ASK_SECONDS)
                await asyncio.sleep(AGAIN_SECONDS)
            return None
        finally:
            await client.close()


def _directory(row: Any) -> Uuid:
    return ZERO_UUID if row.replica_directory_id is None else Uuid(row.replica_directory_id.bytes)


def _kraft_version(partition: Any) -> int:
    """1 when every voter has a directory id, else 0: with kraft.version 0 the log has no directory ids. A stock leader
    may know the directories all the same; it then refuses the first change of voters."""
    return int(all(row.replica_directory_id is not None for row in partition.current_voters))


def _places(registration: ControllerRegistration, listener: str) -> list[HostPort]:
    return [(at.host, at.port) for at in registration.listeners if at.name == listener]


def _configured(texts: Mapping[str, str]) -> list[HostPort]:
    """The addresses of controllers in a broker's configuration; none if the value cannot be parsed."""
    servers, voters = (texts.get(key, "") for key in WHERE_CONTROLLERS_ARE)
    try:
        found = [*parse_bootstrap_servers(split_list(servers))]
        return [*found, *((voter.host, voter.port) for voter in parse_voters(split_list(voters)))]
    except ValueError:
        return []


async def _addresses(places: Iterable[HostPort]) -> Addresses:
    """Each place by its written name, and by each IP address of that name: two names may mean one machine."""
    loop, found = asyncio.get_running_loop(), set()
    for host, port in places:
        found.add(f"{host}:{port}")
        try:
            resolved = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            continue
        found |= {f"{address[0]}:{port}" for *_, address in resolved}
    return frozenset(found)


NOBODY_LEADS = Wait("No controller leads, or none of them answers.", "See 'migrator status'.")


class MembersRun:
    """One hand-over to the controllers ``wanted``.

    :param property_file: of any controller of the cluster, old or new, on this machine.
    :param wanted: the ids of the controllers that shall be the voters.
    :param tell: shows a sentence to the operator.
    :param patience_seconds: the longest time without progress.
    :raises OperatorError: the file can't be used.
    """

    def __init__(
        self,
        property_file: Path,
        wanted: Iterable[int],
        *,
        tell: Callable[[str], None],
        patience_seconds: float = PATIENCE_SECONDS,
        voters: MembersSurvey | None = None,
    ) -> None:
        self._file = property_file.resolve()
        self._tell = tell
        self._patience_seconds = patience_seconds
        self._voters = voters or MembersSurvey(load_settings(property_file)[0], wanted)
        self._begun: Step | None = None
        self._said = ""

    async def look(self) -> ObservedMembers:
        """The quorum and its brokers now; waits for a leader.

        :raises OperatorError: no controller led for ``patience_seconds``.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_seconds
        while (seen := await self._voters.look()) is None:
            self._say(NOBODY_LEADS)
            if loop.time() > deadline:
                raise self._impatience(NOBODY_LEADS)
            await asyncio.sleep(POLL_SECONDS)
        return seen

    async def look_ahead(self, seconds: float) -> ObservedMembers:
        """Looks until no step waits, for ``seconds`` at most, but always twice: only the second look distinguishes a
        controller that is behind from a controller that lacks one record. Errors as in `look`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        await self.look()
        while isinstance(plan((seen := await self.look()).planner), Wait) and loop.time() < deadline:
            if any(refusals(seen)):
                break
            await asyncio.sleep(POLL_SECONDS)
        return seen

    async def run(self) -> None:
        """Hand over to the end. May be called again, also by another process, after any failure.

        :raises OperatorError: the hand-over is refused, another process does it, or there was no progress for
            ``patience_seconds``.
        """
        with journal_beside(self._file) as journal:
            await self._run(journal)

    async def _run(self, journal: Journal) -> None:
        loop = asyncio.get_running_loop()
        # Lag is measured against the look before, so only the second look tells which voters are really behind.
        await self.look()
        last_progress = loop.time()
        while True:
            seen = await self.look()
            for refusal in refusals(seen):
                raise OperatorError(refusal.reason.rstrip("."), where="--voters", remedy=refusal.remedy)
            step = plan(seen.planner)
            if isinstance(step, ClearTarget):  # the voters are the wanted ones
                self._tell(f"The voters are {', '.join(map(str, seen.wanted))}. Stop the other controllers now")
                return
            waited = step if isinstance(step, Wait) else await self._take(journal, step, seen)
            if waited is None:
                last_progress = loop.time()
                continue
            self._say(waited)
            if loop.time() - last_progress > self._patience_seconds:
                raise self._impatience(waited)
            await asyncio.sleep(POLL_SECONDS)

    async def _take(self, journal: Journal, step: Step, seen: ObservedMembers) -> Wait | None:
        """Take the step. Returns the condition for which it waits, or None when it is done."""
        text = described(step)
        if step != self._begun:
            self._begun = step
            self._tell(text)
            journal.append(wall_ms(), BEGUN, text)
        match step:
            case Add(key):
                answer = await self._voters.add(key)
            case Remove(key):
                answer = await self._voters.remove(key)
            case RemoveSelf():
                answer = await self._voters.remove(seen.planner.own)
            case _:
                answer = "this step is not known here"
        if not answer:
            self._begun = None
            journal.append(wall_ms(), SEEN, f"{text}: done")
            return None
        return Wait(f"The leader did not {text}: {answer}.", "See the log of the leader.")

    def _say(self, wait: Wait) -> None:
        if wait.reason != self._said:
            self._said = wait.reason
            self._tell(f"waits: {wait.reason} {wait.remedy}")

    def _impatience(self, wait: Wait) -> OperatorError:
        return OperatorError(
            f"the step did not complete within {self._patience_seconds:.0f} s: {wait.reason.rstrip('.')}",
            where="--voters",
            remedy=wait.remedy,
        )
