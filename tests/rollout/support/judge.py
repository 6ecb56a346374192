"""The gates of the model."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.migration.machine.states import PublicState
from migrator.rollout.ports import BrokerMode, Gate, GateQuestion, Observation, Waiting

ORDER = [state.label for state in PublicState]


def judge(question: GateQuestion, seen: Observation) -> tuple[Waiting, ...]:
    return tuple(Waiting(question.gate.name, what, "mend the model") for what in _shut(question, seen))


def _shut(question: GateQuestion, seen: Observation) -> Iterator[str]:
    gate, node = question.gate, question.node
    quorum, partitions, migration = seen.quorum, seen.partitions, seen.migration
    if gate is Gate.PARTITIONS_HEALTHY:
        if partitions is None or partitions.offline or partitions.under_replicated:
            yield f"partitions {partitions}"
    elif gate in (Gate.QUORUM_HEALTHY, Gate.OTHERS_CAUGHT_UP):
        own = node.node_id if node is not None and gate is Gate.OTHERS_CAUGHT_UP else -1
        others = [] if quorum is None else [voter for voter in quorum.voters.values() if voter.node_id != own]
        if quorum is None or quorum.leader_id is None or any(voter.lag_records != 0 for voter in others):
            yield "the quorum is not healthy"
    elif gate is Gate.BROKER_GONE and node is not None:
        broker = (seen.brokers or {}).get(node.node_id)
        if broker is not None and broker.mode is not None:
            yield f"{node.name} is still there"
    elif gate is Gate.BROKER_BACK and node is not None:
        yield from _back(question, node.node_id, seen)
    elif gate is Gate.CONTROLLER_BACK and node is not None:
        voter = None if quorum is None else quorum.voters.get(node.node_id)
        wrong = voter is None or (question.program not in (None, voter.program))
        if wrong or voter is None or question.migration_on not in (None, voter.migration_on):
            yield f"{node.name} is not back as expected"
    elif gate is Gate.BROKERS_IN_MODE:
        wrong_ones = [str(each.broker_id) for each in (seen.brokers or {}).values() if each.mode is not question.mode]
        if wrong_ones:
            yield f"brokers {', '.join(wrong_ones)} are not in {question.mode} mode"
    elif gate is Gate.MIGRATION_STATE:
        state = "" if migration is None else migration.state
        if state not in ORDER or ORDER.index(state) < ORDER.index(question.state):
            yield f"the state is {state or 'unknown'}, not {question.state}"
    elif gate is Gate.WRITE_BEHIND_IDLE:
        if migration is None or migration.write_behind_lag != 0:
            yield "ZooKeeper is behind"
    elif gate is Gate.NO_FOREIGN_WRITES:
        if migration is not None and migration.foreign_writes:
            yield f"foreign writes {migration.foreign_writes}"
    elif gate is Gate.ZOOKEEPER_CONTROLLER and seen.controller_broker is None:
        yield "no broker is the controller"


def _back(question: GateQuestion, broker_id: int, seen: Observation) -> Iterator[str]:
    broker = (seen.brokers or {}).get(broker_id)
    if broker is None or not broker.serving or broker.mode is not question.mode:
        yield f"broker {broker_id} is not back in {question.mode or BrokerMode.ZOOKEEPER} mode"
    elif question.before is not None and broker.registration == question.before.registration:
        yield f"broker {broker_id} was not restarted"
