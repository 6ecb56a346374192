"""The operator's next step in each state of a migration: a table, and the row that fits a status. Pure.

`migrator status` and the page call `next_step`. Each state of the driver has a row, and the first row that fits
decides. A step names commands that exist; a test runs through all states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from migrator.observe.printable import number_ranges
from migrator.observe.status import BrokerState, Problem, Status
from migrator.values import value

GOES_ON = "nothing to do: the controller goes on by itself"
MEND = "do what the messages below say; the controller goes on by itself then"
UNTIL_DUAL_WRITE = "nothing to do: the controller goes on by itself, up to dual-writing"


@value
class SituationFacts:
    """The facts that decide between the rows of one state. Ids of brokers by mode, of voters by migration flag.
    ``down``: brokers in KRaft mode that do not serve. ``blocked``: the migration waits for a person. ``troubled``:
    there is at least one problem. ``reopened``: the migration was finished before, and reopened."""

    zookeeper_brokers: tuple[int, ...]
    kraft_brokers: tuple[int, ...]
    on: tuple[int, ...]
    off: tuple[int, ...]
    down: tuple[int, ...] = ()
    blocked: bool = False
    troubled: bool = False
    reopened: bool = False

    @property
    def words(self) -> dict[str, str]:
        """The words that a row may use."""
        return {
            "zookeeper": number_ranges("broker", self.zookeeper_brokers),
            "kraft": number_ranges("broker", self.kraft_brokers),
            "on": number_ranges("controller", self.on),
            "off": number_ranges("controller", self.off),
            "down": number_ranges("broker", self.down),
        }


def _always(_facts: SituationFacts) -> bool:
    return True


@value
class Row:
    """``states``: names of internal states. The first row of a state whose ``when`` is true is the answer."""

    states: tuple[str, ...]
    text: str
    when: Callable[[SituationFacts], bool] = _always
    needs_calm: bool = False
    """Whether the step is shown only when there is no problem."""
    case: str = ""
    """``when`` in words."""


ROWS = (
    Row(("nothing to migrate",), "nothing to do: this cluster was created in KRaft mode"),
    Row(
        ("turned off",),
        "to begin, set zookeeper.metadata.migration.enable=true and zookeeper.connect on every controller, and restart "
        "one after the other",
    ),
    Row(("examining ZooKeeper", "releasing a claim", "awaiting a ZooKeeper controller", "reopening"), GOES_ON),
    Row(("refused",), "do what the message below says: nothing happens before"),
    Row(
        ("waiting for controllers",),
        "make every controller ready, as the messages below say; the copy begins by itself when brokers are ready too",
    ),
    Row(("waiting for brokers",), UNTIL_DUAL_WRITE, lambda facts: not facts.blocked, case="all brokers are ready"),
    Row(
        ("waiting for brokers",),
        "restart every broker with the settings of the migration, one after the other; the copy begins by itself then",
    ),
    Row(("decoding", "claiming", "copying", "committing the copy"), UNTIL_DUAL_WRITE),
    Row(("aborting the copy",), "nothing to do: ZooKeeper gets its own controller back, then the copy is tried again"),
    Row(("paused",), "run 'migrator resume' to let the migration go on"),
    Row(
        ("reconciling", "comparing beside the writes", "admitting ZooKeeper brokers", "informing brokers"),
        UNTIL_DUAL_WRITE,
    ),
    Row(
        ("holding deletes",),
        "look at what would be deleted in ZooKeeper (migrator status --journal); 'migrator force deletes' allows it",
    ),
    Row(
        ("dual-writing",),
        "turn the migration on again on {off}: brokers in ZooKeeper mode still need it",
        lambda facts: bool(facts.off and facts.zookeeper_brokers),
        case="brokers in ZooKeeper mode, and the migration is off on a controller",
    ),
    Row(
        ("dual-writing",),
        "wait for {down}, or start what is down: no other node should be restarted before. What is gone for good: "
        "'migrator quorum unregister'",
        lambda facts: bool(facts.down),
        needs_calm=True,
        case="a broker in KRaft mode does not serve",
    ),
    Row(
        ("dual-writing",),
        "the migration was reopened. To go home, run 'migrator verify', then restart the brokers in migration mode, "
        "one after the other: {kraft} (docs/way-back.md). To end the migration again, turn it off on every controller",
        lambda facts: facts.reopened and bool(facts.kraft_brokers),
        needs_calm=True,
        case="reopened, and brokers are in KRaft mode",
    ),
    Row(
        ("dual-writing",),
        "the migration was reopened. To go home, wait until 'migrator gates rollback' has no NO, stop the controllers, "
        "and run 'migrator rollback'",
        lambda facts: facts.reopened,
        needs_calm=True,
        case="reopened",
    ),
    Row(
        ("dual-writing",),
        "run 'migrator verify', then restart the brokers in KRaft mode, one after the other: {zookeeper}",
        lambda facts: bool(facts.zookeeper_brokers) and not facts.kraft_brokers,
        needs_calm=True,
        case="all brokers are in ZooKeeper mode",
    ),
    Row(
        ("dual-writing",),
        "restart the other brokers in KRaft mode, one after the other: {zookeeper}. Done: {kraft}",
        lambda facts: bool(facts.zookeeper_brokers),
        needs_calm=True,
        case="some brokers are in ZooKeeper mode",
    ),
    Row(
        ("dual-writing",),
        "restart the other controllers with the migration turned off, one after the other: {on}. "
        "After the last one only 'migrator reopen' leads back",
        lambda facts: bool(facts.off and facts.on),
        needs_calm=True,
        case="no broker is in ZooKeeper mode, and the migration is off on some controllers",
    ),
    Row(
        ("dual-writing",),
        "run 'migrator verify', then restart the controllers with the migration turned off, one after the other. "
        "After the last one only 'migrator reopen' leads back",
        needs_calm=True,
    ),
    Row(
        ("finishing",),
        "restart the other controllers with the migration turned off, one after the other: {on}",
        lambda facts: bool(facts.on),
        case="the migration is on on some controllers",
    ),
    Row(("finishing",), "do what the messages below say; the migration ends by itself then"),
    Row(("stepping down",), "nothing to do: a controller that has the migration on takes over"),
    Row(("completing",), "nothing to do: the end of the migration is written"),
    Row(
        ("finished",),
        "'migrator gates reopen' says what stands against reopening the migration. Without a reopening, turn the "
        "migration off on {on}",
        lambda facts: bool(facts.on),
        case="the migration is on on some controllers",
    ),
    Row(
        ("finished",),
        "stop ZooKeeper if nothing else uses it; 'migrator handover' hands the quorum over to Kafka's own controllers",
    ),
    Row(("inactive",), "ask the controller that leads: it knows what comes next"),
)
DOWN = (BrokerState.OFFLINE, BrokerState.FENCED)
NO_LEADER = "bring back enough controllers for an election: nothing goes on before"
BLANK = "start the controllers: nothing is known before the first election"


FIRST = "first do what the messages below say. Then "


def next_step(status: Status, problems: Sequence[Problem] = ()) -> str:
    """One clause that begins with a small letter."""
    if status.quorum.leader_id < 0:
        return BLANK if status.is_new else NO_LEADER
    found = facts_of(status, problems)
    for row in ROWS:
        if status.migration.internal_state in row.states and row.when(found):
            if found.blocked and row.text in (GOES_ON, UNTIL_DUAL_WRITE):
                return MEND
            return (FIRST if row.needs_calm and found.troubled else "") + row.text.format(**found.words)
    return GOES_ON


def facts_of(status: Status, problems: Sequence[Problem]) -> SituationFacts:
    brokers, voters = status.brokers, status.quorum.voters
    return SituationFacts(
        tuple(broker.broker_id for broker in brokers if broker.in_zookeeper_mode),
        tuple(broker.broker_id for broker in brokers if not broker.in_zookeeper_mode),
        tuple(voter.node_id for voter in voters if voter.zk_migration_ready is True),
        tuple(voter.node_id for voter in voters if voter.zk_migration_ready is False),
        tuple(broker.broker_id for broker in brokers if not broker.in_zookeeper_mode and broker.state in DOWN),
        blocked=any(not problem.warning for problem in problems),
        troubled=bool(problems),
        reopened=bool(status.migration.reopened),
    )
