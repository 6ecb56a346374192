"""Nodes for which the end of a migration does not wait: an operator says that they are gone for good, and nothing
contradicts this. Pure.

A voter may be left out of the question whether the migration is turned off everywhere; a broker in ZooKeeper mode is
unregistered. Both are refused for a node that shows life: after the end, a broker in ZooKeeper mode has no controller.
An order about a voter is for one leader only, because it rests on what this leader sees: the next one is asked again.
"""

from __future__ import annotations

from migrator.config.keys import FLAG
from migrator.errors import OperatorError
from migrator.migration.machine.finish import without
from migrator.migration.machine.readiness import Gap, Severity
from migrator.migration.machine.states import State
from migrator.values import value


def vanished(broker_id: int) -> Gap:
    """The gap of a registered broker in ZooKeeper mode that no longer sends heartbeats and delays the end."""
    who = f"broker {broker_id}"
    return Gap(
        who,
        "it is registered in ZooKeeper mode, but it sends no heartbeats, and /brokers/ids does not contain it. So the "
        "migration cannot be finished",
        f"Start it in KRaft mode. {without(who, broker_id)}",
        Severity.WARNING,
    )


@value
class VoterToLeaveOut:
    """A voter that ``answers`` us, or ``fetches`` from us, is running."""

    node_id: int
    answers: bool
    fetches: bool

    def check(self, state: State) -> None:
        """:raises OperatorError: the migration does not wait for this voter, or the voter is not gone."""
        if state is not State.FINISHING:
            raise kept(
                f"the migration is '{state.value}', and then it does not wait for controller {self.node_id}",
                f"Restart the other controllers with {FLAG}=false, or without that key. If controller {self.node_id} "
                "holds up the end then, give the order again.",
            )
        if self.answers or self.fetches:
            does = "answers" if self.answers else "fetches from the leader"
            raise kept(
                f"controller {self.node_id} {does}, so it is not gone",
                f"Restart controller {self.node_id} with {FLAG}=false, or without that key.",
            )


@value
class BrokerToLeaveOut:
    """``silent``: no heartbeat for a whole session time-out, and fenced; ``in_zookeeper``: its znode in /brokers/ids
    exists."""

    node_id: int
    in_zookeeper_mode: bool
    silent: bool
    in_zookeeper: bool

    def check(self, state: State) -> None:
        """A broker without heartbeats to the controllers may still serve clients: its znode in ZooKeeper shows that.

        :raises OperatorError: the broker does not delay the end, or is not gone.
        """
        who = f"broker {self.node_id}"
        if not self.in_zookeeper_mode:
            raise kept(f"{who} is in KRaft mode, and does not hold up the end", "No action is needed.")
        if state is not State.DUAL_WRITING:
            raise kept(
                f"while the migration is '{state.value}', this controller cannot see in ZooKeeper whether {who} runs",
                f"Restart one controller with {FLAG}=true and zookeeper.connect, and wait until the state is "
                f"'{State.DUAL_WRITING.value}'.",
            )
        if not self.silent:
            raise kept(
                f"{who} sends heartbeats, or has been silent for a few seconds only",
                f"Restart {who} in KRaft mode. If its process has just ended, wait for broker.session.timeout.ms.",
            )
        if self.in_zookeeper:
            raise kept(
                f"{who} runs: /brokers/ids/{self.node_id} exists in ZooKeeper, although {who} sends no heartbeats to "
                "this controller",
                f"Stop {who}, or restart {who} in KRaft mode. If the machine is lost, wait until its ZooKeeper session "
                "ends.",
            )


def unknown(node_id: int) -> OperatorError:
    return kept(
        f"{node_id} is neither a controller of the quorum nor a registered broker",
        "'migrator status' lists the controllers and the brokers with their ids.",
    )


def kept(what: str, remedy: str) -> OperatorError:
    """The error that says that nothing changes, and why."""
    return OperatorError(f"nothing was forced: {what}", where="force finish", remedy=remedy)
