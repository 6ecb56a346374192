"""The output of `migrator status`, made from the answers of controllers. Pure: lines and tables, or one line for a
change.

The page shows the leader's view if the leader answers: other controllers know only their logs. The page adds their
reports about themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from migrator.config.endpoints import is_loopback
from migrator.observe.kafkas_words import kafkas_words
from migrator.observe.leaders import stock_leads
from migrator.observe.next_steps import next_step
from migrator.observe.printable import duration, number_ranges, utc
from migrator.observe.problem_groups import Group, groups_of
from migrator.observe.status import (
    SILENT_MS,
    UNKNOWN_LAG,
    BrokerStatus,
    JournalEvent,
    Problem,
    QuorumStatus,
    Status,
    VoterStatus,
    silent_voters,
    versions_said,
)
from migrator.values import value

RECENT_EVENTS = 8
UNKNOWN_STATE = "Unknown"
"""The public state that is shown while no controller has any metadata."""
FLAG_IS_PAST = ("finished", "nothing to migrate")
"""Internal states in which it does not matter whether a controller has the migration on."""


@value
class Unreached:
    """A controller that did not answer: how it was to be reached, and why that failed."""

    where: str
    why: str


@value
class Answers:
    """``best``: the view to show. ``others``: the other answers. ``asked``: the answer of the controller that was asked
    first; None when it did not answer."""

    best: Status
    asked: Status | None
    others: tuple[Status, ...] = ()
    unreached: tuple[Unreached, ...] = ()

    @property
    def has_leader(self) -> bool:
        """Whether the quorum of the view has a leader."""
        return self.best.quorum.leader_id >= 0

    @property
    def is_leaders(self) -> bool:
        """Whether the view is the leader's own."""
        return self.best.quorum.leader_id == self.best.node_id


@value
class Table:
    """Rows of texts; ``caption`` may be ""."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@value
class Page:
    """The parts in the order in which a reader needs them."""

    state: str
    """The public state, shown in bold."""
    headline: tuple[str, ...]
    """The first part continues the line of the state."""
    groups: tuple[Group, ...]
    tables: tuple[Table, ...] = field(default=())
    events: tuple[str, ...] = ()


def page_of(answers: Answers) -> Page:
    status = answers.best
    tables = [_voters(status, is_leaders=answers.is_leaders)]
    if status.brokers:
        tables.append(_brokers(status.brokers, is_leaders=answers.is_leaders))
    return Page(
        _state(status),
        tuple(_headline(answers)),
        groups_of(problems_of(answers)),
        tuple(tables),
        tuple(event_line(event) for event in _events(answers)),
    )


def _events(answers: Answers) -> tuple[JournalEvent, ...]:
    """The last lines of the journal. While another controller leads, those of this one are of an earlier leadership,
    and nothing of now."""
    if answers.has_leader and not answers.is_leaders:
        return ()
    return answers.best.recent_events[-RECENT_EVENTS:]


def change_line(answers: Answers) -> str:
    """The important parts of a status, on one line without a time. Two equal lines mean no change."""
    status = answers.best
    migration = status.migration
    doing = f" ({migration.internal_state})" if migration.active else ""
    leader = f"controller {status.quorum.leader_id} leads" if answers.has_leader else "no controller leads"
    brokers = [
        f"{number_ranges('broker', ids)} {state}"
        for state in sorted({broker.state for broker in status.brokers})
        if (ids := [broker.broker_id for broker in status.brokers if broker.state == state])
    ]
    problems = [
        f"{who}: {what}" for group in groups_of(problems_of(answers, with_ages=False)) for who, what in group.whats
    ]
    paused = ["paused"] if migration.paused else []
    return "; ".join([f"{_state(status)}{doing}, {leader}", *paused, *brokers, *problems])


def event_line(event: JournalEvent) -> str:
    """One entry of the journal, with its time (UTC)."""
    return f"{utc(event.time_ms, 'Z')} {sentence_of(event)}"


def sentence_of(event: JournalEvent) -> str:
    """The event, and who ordered it."""
    return f"{event.kind}: {event.text}" + (f" (by {event.by})" if event.by else "")


def _state(status: Status) -> str:
    return UNKNOWN_STATE if status.is_blank else status.migration.public_state


def _headline(answers: Answers) -> Iterable[str]:
    status = answers.best
    yield _doing(answers)
    for unreached in answers.unreached if answers.asked is None else ():
        yield f"{unreached.where}: {unreached.why}"
    if answers.asked is None or answers.asked.node_id != status.node_id:
        asked = f"controller {answers.asked.node_id} does not lead; " if answers.asked else ""
        yield f"{asked}this is what controller {status.node_id} says{', which leads' if answers.is_leaders else ''}"
    leader = status.quorum.leader_id
    if answers.has_leader and status.quorum.stock_leader:
        yield stock_leads(leader)
    elif answers.has_leader and not answers.is_leaders:
        host = next((voter.host for voter in status.quorum.voters if voter.node_id == leader), "")
        on = f" on {host}" if host and not is_loopback(host) else ""
        yield (
            f"controller {leader} leads and knows more about the migration, but was not reached: run this command"
            f"{on} with the property file of controller {leader}, or give its migrator.grpc.listener with --server"
        )
    if status.migration.reopened:
        yield f"reopened after its end: {status.migration.reopened}"
    yield f"next: {next_step(status, problems_of(answers))}"
    in_zookeeper = any(broker.in_zookeeper_mode for broker in status.brokers)
    migration = status.migration
    words = kafkas_words(migration.public_state, migration.internal_state, in_zookeeper_mode=in_zookeeper)
    if migration.active and words:
        yield f"in Kafka's words: {words}"
    version = f", metadata.version {status.metadata_version}" if status.metadata_version else ""
    yield f"cluster {status.cluster_id or 'with an id that is not known here'}{version}, this program {status.version}"
    behind = status.write_behind
    if behind is not None:
        is_away = any(it.who == "ZooKeeper" and not it.warning for it in status.problems)
        yield _behind(behind.lag_records, behind.lag_ms, behind.blocked_ms, is_away=is_away)
        if behind.versions_missing > 0:
            yield versions_said(behind)
    if status.claim is not None:
        yield f"/controller is ours, controller epoch {status.claim.controller_epoch}"


def _doing(answers: Answers) -> str:
    status = answers.best
    migration, leader = status.migration, status.quorum.leader_id
    if migration.active:
        age = "" if migration.internal_state_age_ms < 0 else f" for {duration(migration.internal_state_age_ms)}"
        return f"({migration.internal_state}{age}{_paused(status)})"
    if leader < 0:
        last = "this one knows no metadata yet" if status.is_blank else "the last known state"
        when = "no controller has been elected yet" if status.is_new else f"no controller leads; {last}"
        return f"({when}{_paused(status)})"
    if leader == status.node_id:
        return f"(controller {leader} has just been elected{_paused(status)})"
    return f"(as controller {status.node_id} knows it, which follows controller {leader}{_paused(status)})"


def _paused(status: Status) -> str:
    return ", paused" if status.migration.paused else ""


def _behind(records: int, lag_ms: int, blocked_ms: int, *, is_away: bool) -> str:
    waited = f"; administrative writes have waited {duration(blocked_ms)} for ZooKeeper so far" if blocked_ms else ""
    if records == UNKNOWN_LAG:
        return f"it is not known yet how far ZooKeeper is behind the log{waited}"
    if not records and is_away:
        return f"nothing waits to be written to ZooKeeper, which has a problem{waited}"
    if not records:
        return f"ZooKeeper holds everything that the log holds{waited}"
    return f"ZooKeeper is {records} records behind the log, for {duration(lag_ms)}{waited}"


def _voters(status: Status, *, is_leaders: bool) -> Table:
    """The table of voters. It has only columns that this node knows and that still matter."""
    quorum = status.quorum
    asks_flag = is_leaders and not status.is_blank and status.migration.internal_state not in FLAG_IS_PAST
    asked = any(voter.answers is not None for voter in quorum.voters)
    columns = ["voter", "address"]
    columns += ["last heard", "log end"] if is_leaders else ["answers"] if asked else []
    columns += ["migration"] if asks_flag else []
    rows = []
    for voter in quorum.voters:
        name = f"{voter.node_id}{' *' if voter.node_id == quorum.leader_id else ''}"
        row = [name, f"{voter.host}:{voter.port}"]
        if is_leaders:
            own = voter.node_id == status.node_id
            end = quorum.log_end_offset if own else voter.log_end_offset
            row += [
                "leads" if own else heard(voter.heard_ms_ago, voter.silent_ms),
                "not known" if end < 0 else str(end),
            ]
        elif asked:
            row.append({True: "yes", False: "no", None: "not asked"}[voter.answers])
        row += [{True: "on", False: "off", None: "not known"}[voter.zk_migration_ready]] if asks_flag else []
        rows.append(tuple(row))
    return Table(_quorum_title(quorum), tuple(columns), tuple(rows), _quorum_caption(status))


def _quorum_title(quorum: QuorumStatus) -> str:
    leader = f"controller {quorum.leader_id} leads" if quorum.leader_id >= 0 else "no controller leads"
    return f"quorum: {leader}, epoch {quorum.leader_epoch}"


NOT_YET_COMMITTED = "nothing is committed in this epoch yet"


def _quorum_caption(status: Status) -> str:
    quorum = status.quorum
    own = "" if quorum.leader_id == status.node_id else f", its log ends at {quorum.log_end_offset}"
    committed = f"committed up to {quorum.high_watermark}" if quorum.high_watermark >= 0 else NOT_YET_COMMITTED
    return f"{committed}, controller {status.node_id} is {quorum.role}{own}"


def _brokers(brokers: tuple[BrokerStatus, ...], *, is_leaders: bool) -> Table:
    columns = ("id", "state", "mode", "last heard") if is_leaders else ("id", "mode")
    rows = []
    for broker in brokers:
        mode = "ZooKeeper" if broker.in_zookeeper_mode else "KRaft"
        last = heard(broker.heartbeat_age_ms, broker.silent_ms)
        last += ", but answers" if broker.graced else ""
        said = (broker.state.value, mode, last) if is_leaders else (mode,)
        rows.append((str(broker.broker_id), *said))
    return Table("brokers", columns, tuple(rows))


def heard(age_ms: int, silent_ms: int) -> str:
    """The text for the time since the leader last heard from a node."""
    if age_ms < 0:
        return "not by this leader" if silent_ms < SILENT_MS else f"not for {duration(silent_ms)}"
    return "now" if age_ms < SILENT_MS else f"{duration(age_ms)} ago"


def problems_of(answers: Answers, *, with_ages: bool = True) -> tuple[Problem, ...]:
    """All problems: of the view, of silent voters, and those that other controllers report about themselves."""
    status = answers.best
    found = list(status.problems)
    named = {problem.who for problem in found}
    found += [
        _silent(voter, with_age=with_ages) for voter in silent_voters(status) if _is_unnamed(voter, named, answers)
    ]
    for other in answers.others:
        who = f"controller {other.node_id}"
        found += [problem for problem in other.problems if problem.who == who and problem not in found]
        if answers.is_leaders and other.quorum.leader_id < 0:
            found.append(
                Problem(
                    who,
                    f"it runs, but hears no leader, while controller {status.node_id} leads",
                    "Look at the network between the two, and at the log of this controller",
                    warning=True,
                )
            )
    return (*found, *_formatted_differently(answers))


def _is_unnamed(voter: VoterStatus, named: set[str], answers: Answers) -> bool:
    return answers.is_leaders and f"controller {voter.node_id}" not in named


def _silent(voter: VoterStatus, *, with_age: bool) -> Problem:
    age = duration(voter.silent_ms)
    said = f"last heard {age} ago" if voter.heard_ms_ago >= 0 else f"not heard since the leader was elected {age} ago"
    return Problem(
        f"controller {voter.node_id}",
        said if with_age else "it is silent",
        "Start it, or look at its log and at the network",
        warning=True,
    )


def _formatted_differently(answers: Answers) -> tuple[Problem, ...]:
    """The nodes that were formatted differently. Before the first election it is unknown which metadata.version will
    count."""
    if not answers.best.is_blank:
        return ()
    by_version: dict[str, list[int]] = {}
    for status in (answers.best, *answers.others):
        by_version.setdefault(status.formatted_version, []).append(status.node_id)
    if len(by_version) < 2:
        return ()
    said = "; ".join(f"{number_ranges('controller', ids)} with {name}" for name, ids in sorted(by_version.items()))
    return (
        Problem(
            "quorum",
            f"the directories are formatted with different versions of metadata.version: {said}. That of the first "
            f"leader will count",
            "Format every directory with the same --release-version",
            warning=True,
        ),
    )
