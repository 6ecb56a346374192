"""When may a migration be finished, and who may start a node with the flag off. Pure.

Finishing (`POST_MIGRATION`) cannot be undone: it is written only when every voter signals that its flag is off, and
only while no broker in ZooKeeper mode is left, which would lose its controller for good (KAFKA-20960).
"""

from __future__ import annotations

from collections.abc import Mapping

from migrator.errors import ExitCode, OperatorError
from migrator.image.model import ClusterImage
from migrator.migration.machine.readiness import Gap, Severity
from migrator.migration.machine.states import State
from migrator.migration.machine.transitions import Finding
from migrator.observe.status import VerdictReport
from migrator.values import value

FLAG = "zookeeper.metadata.migration.enable"
GONE_BROKER = "For a broker that is gone for good: migrator force finish --without ID --reason TEXT."


@value
class FinishInputs:
    """``migrating``: ZkMigrationReady of the ApiVersions of each voter, ourselves included; None: did not answer.
    ``zk_brokers``: registered brokers in ZooKeeper mode. ``caught_up``: voters that can lead now, best first.
    ``verified``: whether a verification found both sides equal; None where none is demanded."""

    migrating: Mapping[int, bool | None]
    zk_brokers: tuple[int, ...]
    caught_up: tuple[int, ...] = ()
    verified: bool | None = None


@value
class FinishDecision:
    """``successor`` is the voter to hand the leadership over to, with `Finding.HAND_OVER`."""

    finding: Finding
    reason: str
    remedy: str = ""
    successor: int = -1


@value
class VerdictContext:
    """What a reported verdict is held against: the active controller's cluster, epoch and state, and the epoch that its
    log has at the offset of the verdict, None without that offset."""

    cluster_id: str
    leader_epoch: int
    state: State
    offset_epoch: int | None


def objection(report: VerdictReport, standing: VerdictContext) -> str:
    """Why the end of the migration may not rest on a verdict; "" when it may.

    A leader that finishes has the flag off and never wrote to ZooKeeper in its epoch. So a comparison that began in
    that epoch saw ZooKeeper as it will stay, unless somebody else writes.
    """
    if report.cluster_id != standing.cluster_id:
        return f"it is of cluster {report.cluster_id}, this is {standing.cluster_id}"
    if not report.equal:
        return f"ZooKeeper and the log differ in {report.differences} rows"
    if not standing.state.properties.takes_verdicts:
        return f"the migration is {standing.state.value}: what is written from now on is not covered"
    if report.leader_epoch != standing.leader_epoch:
        return f"it began in leader epoch {report.leader_epoch}, this is epoch {standing.leader_epoch}"
    if report.offset_epoch != standing.offset_epoch:
        return f"this log does not hold offset {report.offset} with epoch {report.offset_epoch}"
    return ""


def zk_mode_brokers(cluster: ClusterImage) -> tuple[int, ...]:
    """Ids of the registered brokers that still run in ZooKeeper mode."""
    return tuple(sorted(i for i, registration in cluster.brokers.items() if registration.is_migrating_zk_broker))


def decide(inputs: FinishInputs, without: frozenset[int] = frozenset()) -> FinishDecision:
    """What a leader whose flag is off does next.

    :param without: voters that the operator has said are gone for good. One that answers all the same counts.
    """
    on = [voter for voter, migrating in sorted(inputs.migrating.items()) if migrating]
    silent = [voter for voter, migrating in sorted(inputs.migrating.items()) if migrating is None]
    silent = [voter for voter in silent if voter not in without]
    if inputs.zk_brokers:
        return _not_while_zk_brokers(inputs, on)
    if on or silent:
        waits = [f"controller {voter} still has {FLAG}=true" for voter in on]
        waits += [f"controller {voter} does not answer" for voter in silent]
        return FinishDecision(
            Finding.WAIT,
            "; ".join(waits),
            f"Remove {FLAG} from the file of every controller, or set it to false, and restart that controller."
            + "".join(f" {_gone_for_good(f'controller {voter}', voter)}" for voter in silent),
        )
    if inputs.verified is False:
        return FinishDecision(
            Finding.WAIT,
            "migrator.finish.require.verify is on, and no verification has found ZooKeeper and the log equal since the "
            "controllers stopped writing to ZooKeeper",
            "Run 'migrator verify -c FILE --report' on this controller, with --zookeeper HOSTS if FILE has no "
            f"zookeeper.connect any more. What differs is repaired with {FLAG}=true.",
        )
    return FinishDecision(Finding.MAY_FINISH, "every voter has the migration turned off")


def decide_before_copy(inputs: FinishInputs) -> FinishDecision:
    """What a leader whose flag is off does while nothing is copied yet: one that has it on leads better, because it
    knows what the copy waits for, and gives back a claim that a leader may have left in ZooKeeper."""
    on = [voter for voter, migrating in sorted(inputs.migrating.items()) if migrating]
    off = [voter for voter, migrating in sorted(inputs.migrating.items()) if migrating is False]
    plural = "s" if len(off) > 1 else ""
    reason = f"the migration has not begun, and it is turned off on controller{plural} {', '.join(map(str, off))}"
    remedy = f"Set {FLAG}=true and zookeeper.connect there, and restart."
    successor = next((voter for voter in inputs.caught_up if voter in on), -1)
    if successor < 0:
        return FinishDecision(Finding.WAIT, reason, remedy)
    reason += f"; controller {successor}, which has it on, takes over"
    return FinishDecision(Finding.HAND_OVER, reason, remedy, successor)


def vanished(broker_id: int) -> Gap:
    """A registered broker in ZooKeeper mode that sends no heartbeats any more, and that alone holds up the end."""
    who = f"broker {broker_id}"
    return Gap(
        who,
        "it is in ZooKeeper mode and sends no heartbeats, so the migration cannot be finished",
        f"Start it in KRaft mode. {_gone_for_good(who, broker_id)}",
        Severity.WARNING,
    )


def _gone_for_good(who: str, node_id: int) -> str:
    return f"If {who} is gone for good: migrator force finish --without {node_id} --reason TEXT."


@value
class VoterToLeaveOut:
    """``answers`` to us, or ``fetches`` from us: it is there."""

    node_id: int
    answers: bool
    fetches: bool

    def check(self, state: State) -> None:
        """:raises OperatorError: the migration does not wait for it, or it is not gone."""
        if state is not State.FINISHING:
            raise _kept(
                f"a silent controller holds up nothing while the migration is '{state.value}'",
                f"First restart the other controllers with {FLAG}=false, or without that key.",
            )
        if self.answers or self.fetches:
            does = "answers" if self.answers else "fetches from the leader"
            raise _kept(
                f"controller {self.node_id} {does}, so it is not gone",
                f"Restart controller {self.node_id} with {FLAG}=false, or without that key.",
            )


@value
class BrokerToLeaveOut:
    """``silent``: for the session time-out, and fenced; ``in_zookeeper``: its znode in /brokers/ids exists."""

    node_id: int
    in_zookeeper_mode: bool
    silent: bool
    in_zookeeper: bool

    def check(self, state: State) -> None:
        """A broker that the controllers do not hear may still serve clients: ZooKeeper knows.

        :raises OperatorError: it does not hold up the end, or it is not gone.
        """
        who = f"broker {self.node_id}"
        if not self.in_zookeeper_mode:
            raise _kept(f"{who} is in KRaft mode, and does not hold up the end", "No action is needed.")
        if state is not State.DUAL_WRITING:
            raise _kept(
                f"while the migration is '{state.value}', this controller cannot see in ZooKeeper whether {who} runs",
                f"Restart one controller with {FLAG}=true and zookeeper.connect, and wait until the state is "
                f"'{State.DUAL_WRITING.value}'.",
            )
        if not self.silent:
            raise _kept(
                f"{who} sends heartbeats, or has been silent for a few seconds only",
                f"Restart {who} in KRaft mode. If its process has just ended, wait for broker.session.timeout.ms.",
            )
        if self.in_zookeeper:
            raise _kept(
                f"{who} runs: /brokers/ids/{self.node_id} exists in ZooKeeper, although {who} sends no heartbeats to "
                "this controller",
                f"Stop {who}, or restart {who} in KRaft mode. If the machine is lost, wait until its ZooKeeper session "
                "ends.",
            )


def _kept(what: str, remedy: str) -> OperatorError:
    return OperatorError(f"nothing was forced: {what}", where="force finish", remedy=remedy)


def _not_while_zk_brokers(inputs: FinishInputs, on: list[int]) -> FinishDecision:
    names = ", ".join(map(str, inputs.zk_brokers))
    remedy = f"Restart the brokers {names} in KRaft mode before {FLAG} is turned off. {GONE_BROKER}"
    successor = next((voter for voter in inputs.caught_up if voter in on), -1)
    if successor >= 0:
        reason = f"brokers {names} are in ZooKeeper mode: controller {successor}, whose flag is on, takes over"
        return FinishDecision(Finding.HAND_OVER, reason, remedy, successor)
    return FinishDecision(
        Finding.WAIT,
        f"brokers {names} are in ZooKeeper mode, and no voter with {FLAG}=true can take over: ZooKeeper is not "
        "written meanwhile",
        f"Turn {FLAG} on again on a controller. {remedy}",
    )


def refuse_start_with_flag_off(zk_brokers: tuple[int, ...], *, source: str, current: bool) -> None:
    """The check at the start of a node whose flag is off while the log says MIGRATION.

    :param source: who was asked, "the leader, controller 2," or "the log of this node,".
    :param current: whether the source knows everything that is committed.
    :raises OperatorError: while a broker in ZooKeeper mode is registered; exit code 2, or 75 if that may be over.
    """
    if zk_brokers:
        names = ", ".join(map(str, zk_brokers))
        raise OperatorError(
            f"the migration is turned off here, which would finish it, but brokers {names} are still in ZooKeeper mode "
            f"({source} says)",
            where=FLAG,
            remedy=f"Restart the brokers {names} in KRaft mode first, or set {FLAG}=true. "
            + ("The other controllers go on with dual-writing." if current else "If that is done, start again.")
            + f" {GONE_BROKER}",
            exit_code=ExitCode.REFUSED if current else ExitCode.TRY_AGAIN,
        )


POST_MIGRATION_FLAG_WARNING = (
    f"{FLAG}=true has no effect any more: the migration of this cluster is finished and cannot be reopened. "
    "Remove the key and the zookeeper.* keys."
)
