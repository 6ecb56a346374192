"""When a migration may be finished, and when a node may start with the flag off. Pure.

The end (`POST_MIGRATION`) is written only when every voter signals that its flag is off, and only while no broker in
ZooKeeper mode is registered: such a broker would lose its controller (KAFKA-20960).
"""

from __future__ import annotations

from collections.abc import Mapping

from migrator.config.keys import FLAG
from migrator.errors import ExitCode, OperatorError
from migrator.image.model import ClusterImage
from migrator.migration.machine.states import State
from migrator.migration.machine.transitions import Finding
from migrator.observe.printable import number_ranges
from migrator.observe.status import VerdictReport
from migrator.values import value

WITHOUT_BROKER = "If a broker is gone for good, the status of a leader that dual-writes names the command for that."


@value
class FinishInputs:
    """``migrating``: ZkMigrationReady of the ApiVersions of each voter, this node included; None for a voter that did
    not answer. ``zk_brokers``: registered brokers in ZooKeeper mode. ``caught_up``: voters that can lead now, best
    first. ``verified``: whether a verification found both sides equal; None when none is required. ``fetching``: voters
    that have fetched from us within the last seconds. ``different``: voters whose metadata differ from ours at the same
    offset."""

    migrating: Mapping[int, bool | None]
    zk_brokers: tuple[int, ...]
    caught_up: tuple[int, ...] = ()
    verified: bool | None = None
    fetching: frozenset[int] = frozenset()
    different: frozenset[int] = frozenset()


@value
class FinishDecision:
    """``successor`` is the voter to hand the leadership over to, with `Finding.HAND_OVER`."""

    finding: Finding
    reason: str
    remedy: str = ""
    successor: int = -1


@value
class VerdictContext:
    """The facts that a reported verdict is compared with: the active controller's cluster, epoch and state, and the
    epoch of its log at the offset of the verdict, None when the log has no such offset."""

    cluster_id: str
    leader_epoch: int
    state: State
    offset_epoch: int | None


def objection(report: VerdictReport, standing: VerdictContext) -> str:
    """Why a verdict may not justify the end of the migration; "" when it may.

    A leader that finishes has the flag off and never wrote to ZooKeeper in its epoch. So a comparison that began in
    that epoch saw ZooKeeper as it will stay, unless another client writes.
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


def without(who: str, node_id: int) -> str:
    """The sentence with the command that leaves a node out."""
    return f"If {who} is gone for good: migrator force finish --without {node_id} --reason TEXT."


def decide(inputs: FinishInputs, left_out: frozenset[int] = frozenset(), *, reopened: bool = False) -> FinishDecision:
    """Decide what a leader whose flag is off does next.

    :param left_out: voters that, as the operator says, are gone for good. A voter among them that still fetches is
        waited for all the same.
    :param reopened: the migration was finished before, and goes on as soon as a voter whose flag is on leads. When
        every flag is off, the operator has given up the reopening. No verification is asked for then: ZooKeeper lacks
        what has changed since the end.
    """
    on = [voter for voter, migrating in sorted(inputs.migrating.items()) if migrating]
    silent = [voter for voter, migrating in sorted(inputs.migrating.items()) if migrating is None]
    gone = left_out - inputs.fetching
    silent = [voter for voter in silent if voter not in gone]
    if inputs.zk_brokers:
        return _not_while_zk_brokers(inputs, on)
    successor = next((voter for voter in inputs.caught_up if voter in on), -1)
    if reopened and successor >= 0:
        return FinishDecision(
            Finding.HAND_OVER,
            f"the migration was reopened: controller {successor}, whose flag is on, takes over",
            f"Set {FLAG}=true on every controller. To give the reopening up, turn the flag off on every controller.",
            successor,
        )
    if on or silent:
        waits = [f"controller {voter} still has {FLAG}=true" for voter in on]
        waits += [f"controller {voter} does not answer" for voter in silent]
        return FinishDecision(
            Finding.WAIT,
            "; ".join(waits),
            f"Remove {FLAG} from the file of every controller, or set it to false, and restart that controller."
            + "".join(f" {without(f'controller {voter}', voter)}" for voter in silent if voter not in inputs.fetching),
        )
    if different := inputs.different - gone:
        return FinishDecision(
            Finding.WAIT,
            f"the metadata of {number_ranges('controller', different)} are not those of the leader",
            "See the problems of the quorum in 'migrator status'. The end waits until the controllers agree.",
        )
    if inputs.verified is False and not reopened:
        return FinishDecision(
            Finding.WAIT,
            "migrator.finish.require.verify is on, and no verification has found ZooKeeper and the log equal since the "
            "controllers stopped writing to ZooKeeper",
            "Run 'migrator verify -c FILE --report' on this controller, with --zookeeper HOSTS if FILE has no "
            f"zookeeper.connect any more. What differs is repaired with {FLAG}=true.",
        )
    missing = [str(voter) for voter in sorted(gone) if inputs.migrating.get(voter, False) is None]
    but = f"; the operator has left out: controller {', '.join(missing)}" if missing else ""
    return FinishDecision(Finding.MAY_FINISH, f"every voter has the migration turned off{but}")


def decide_before_copy(inputs: FinishInputs) -> FinishDecision:
    """Decide what a leader whose flag is off does before the copy. A voter whose flag is on should lead instead: it
    knows what the copy waits for, and releases a claim that an earlier leader may have left in ZooKeeper."""
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


def _not_while_zk_brokers(inputs: FinishInputs, on: list[int]) -> FinishDecision:
    names = ", ".join(map(str, inputs.zk_brokers))
    advice = f"Restart the brokers {names} in KRaft mode before {FLAG} is turned off. {WITHOUT_BROKER}"
    successor = next((voter for voter in inputs.caught_up if voter in on), -1)
    if successor >= 0:
        reason = f"brokers {names} are in ZooKeeper mode: controller {successor}, whose flag is on, takes over"
        return FinishDecision(Finding.HAND_OVER, reason, advice, successor)
    return FinishDecision(
        Finding.WAIT,
        f"brokers {names} are in ZooKeeper mode, and no voter with {FLAG}=true can take over: ZooKeeper is not "
        "written meanwhile",
        f"Turn {FLAG} on again on a controller. {advice}",
    )


def refuse_start_with_flag_off(zk_brokers: tuple[int, ...], *, source: str, current: bool) -> None:
    """Check the start of a node whose flag is off while the log says MIGRATION.

    :param source: where the brokers are from, in words: "the leader, controller 2," or "the log of this node,".
    :param current: whether the source knows everything that is committed.
    :raises OperatorError: a broker in ZooKeeper mode is registered; exit code 2, or 75 if that may no longer be so.
    """
    if zk_brokers:
        names = ", ".join(map(str, zk_brokers))
        raise OperatorError(
            f"the migration is turned off here, which would finish it, but brokers {names} are still in ZooKeeper mode "
            f"({source} says)",
            where=FLAG,
            remedy=f"Restart the brokers {names} in KRaft mode first, or set {FLAG}=true. "
            + ("The other controllers go on with dual-writing. " if current else "If that is done, start again. ")
            + WITHOUT_BROKER,
            exit_code=ExitCode.REFUSED if current else ExitCode.TRY_AGAIN,
        )


POST_MIGRATION_FLAG_WARNING = (
    f"{FLAG}=true has no effect any more: the migration of this cluster is finished. Only 'migrator reopen' "
    "needs the key. Otherwise remove the key and the zookeeper.* keys."
)
