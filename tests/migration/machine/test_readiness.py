"""Each kind of gap is named with who and what to do."""

from __future__ import annotations

import pytest

from migrator.image.model import ClusterImage
from migrator.migration.machine.readiness import (
    ControllerSignals,
    Gap,
    Readiness,
    Requirements,
    Severity,
    ZooKeeperBrokers,
    assess,
    incompatible_brokers,
)
from tests.migration.support.builders import broker, cluster, controller

LISTENERS = frozenset({"REPLICATION", "PLAINTEXT"})
REQUIREMENTS = Requirements("REPLICATION", 19)
ALL_READY = ControllerSignals({3001: True, 3002: True})
CONTROLLERS = [controller(3001), controller(3002)]


def found(
    *,
    listeners: dict[int, frozenset[str]] | None = None,
    replicas: frozenset[int] = frozenset({0, 1}),
    configured: frozenset[int] = frozenset(),
    image: ClusterImage | None = None,
    signals: ControllerSignals = ALL_READY,
    requirements: Requirements = REQUIREMENTS,
) -> Readiness:
    seen = {0: LISTENERS, 1: LISTENERS} if listeners is None else listeners
    return assess(
        ZooKeeperBrokers(seen, replicas, configured),
        signals,
        image or cluster([broker(0), broker(1)], CONTROLLERS),
        requirements,
    )


def test_nothing_is_missing() -> None:
    assert found().ready
    assert found().sentence() == "every controller and every known broker is ready"


def test_a_broker_that_registered_once_and_now_runs_without_the_migration() -> None:
    """After a rollback before the copy its registration is still in the log; one that is down is no obstacle."""
    silent = ControllerSignals({3001: True, 3002: True}, silent_brokers=frozenset({1}))
    (gap,) = found(signals=silent).brokers
    assert gap.who == "broker 1"
    assert "sends no heartbeats" in gap.reason
    assert "zookeeper.metadata.migration.enable=true" in gap.remedy
    assert found(signals=silent, listeners={0: LISTENERS}).ready


@pytest.mark.parametrize(
    ("readiness", "who", "what"),
    [
        (found(listeners={}, replicas=frozenset()), "/brokers/ids", "no broker"),  # and so none is eligible
        (found(image=cluster([broker(0)], CONTROLLERS)), "broker 1", "it runs, but has not registered"),
        (found(replicas=frozenset({0, 1, 7})), "broker 7", "it holds replicas, but is not running"),
        (found(image=cluster([broker(0), broker(1, migrating=False)], CONTROLLERS)), "broker 1", "KRaft mode"),
        (found(image=cluster([broker(0), broker(1, levels=(17, 17))], CONTROLLERS)), "broker 1", "17 to 17"),
        (found(listeners={0: LISTENERS, 1: frozenset({"PLAINTEXT"})}), "broker 1", "no listener REPLICATION"),
    ],
)
def test_a_broker_that_is_missing(readiness: Readiness, who: str, what: str) -> None:
    assert not readiness.ready
    (gap,) = readiness.brokers
    assert gap.who == who
    assert what in gap.reason
    assert gap.remedy
    assert readiness.ineligible_brokers == 1


@pytest.mark.parametrize(
    ("readiness", "what"),
    [
        (
            found(
                signals=ControllerSignals({3001: True, 3002: None}),
                image=cluster([broker(0), broker(1)], CONTROLLERS[:1]),
            ),
            "does not answer",
        ),
        (found(signals=ControllerSignals({3001: True, 3002: False})), "does not announce"),
        (found(image=cluster([broker(0), broker(1)], CONTROLLERS[:1])), "has not registered"),
        (found(image=cluster([broker(0), broker(1)], [*CONTROLLERS[:1], controller(3002, ready=False)])), "not ready"),
    ],
)
def test_a_controller_that_is_missing(readiness: Readiness, what: str) -> None:
    (gap,) = readiness.controllers
    assert gap.who == "controller 3002"
    assert what in gap.reason
    assert readiness.ineligible_controllers == 1
    assert "controller 3002" in readiness.sentence()


def test_while_no_broker_runs_those_count_that_hold_replicas() -> None:
    readiness = found(listeners={}, image=cluster([], CONTROLLERS))
    assert (readiness.ineligible_brokers, readiness.ineligible_controllers) == (2, 0)
    assert "brokers 0, 1: each holds replicas, but is not running" in readiness.sentence()


def test_a_controller_that_is_down_but_registered_as_ready_is_a_warning() -> None:
    readiness = found(signals=ControllerSignals({3001: True, 3002: None}))
    assert readiness.ready
    assert [(gap.who, gap.severity) for gap in readiness.warnings] == [("controller 3002", Severity.WARNING)]
    unready = cluster([broker(0), broker(1)], [controller(3001), controller(3002, ready=False)])
    assert not found(signals=ControllerSignals({3001: True, 3002: None}), image=unready).ready


def test_before_controllers_register_only_their_signal_counts() -> None:
    old = Requirements("", 14)
    image = cluster([broker(0, levels=(14, 14)), broker(1, levels=(14, 14))], [])
    assert found(image=image, requirements=old).ready


def test_a_broker_that_has_only_a_configuration_is_a_warning() -> None:
    readiness = found(configured=frozenset({0, 9}))
    assert readiness.ready
    assert [(gap.who, gap.severity) for gap in readiness.warnings] == [("broker 9", Severity.WARNING)]


def test_znodes_that_do_not_decode_block() -> None:
    fault = Gap("/brokers/ids/1", "not JSON", "Restart broker 1.")
    readiness = assess(
        ZooKeeperBrokers({0: LISTENERS}, frozenset({0}), faults=(fault,)),
        ALL_READY,
        cluster([broker(0)], CONTROLLERS),
        REQUIREMENTS,
    )
    assert readiness.brokers == (fault,)


def test_incompatible_brokers_are_named() -> None:
    gaps = incompatible_brokers(cluster([broker(0), broker(1, levels=(20, 20))], []), 19)
    assert list(gaps) == [1]
    assert "inter.broker.protocol.version" in gaps[1].remedy


def test_a_long_list_is_cut_in_the_sentence_only() -> None:
    faults = tuple(Gap(f"/brokers/ids/{number}", "not JSON", f"Restart broker {number}.") for number in range(48))
    readiness = assess(
        ZooKeeperBrokers({0: LISTENERS}, frozenset({0}), faults=faults),
        ALL_READY,
        cluster([broker(0)], CONTROLLERS),
        REQUIREMENTS,
    )
    assert len(readiness.brokers) == 48
    assert "and 45 more" in readiness.sentence()


def test_what_one_remedy_mends_is_said_once() -> None:
    sentence = found(replicas=frozenset(range(50))).sentence()
    assert sentence.startswith("brokers 2-49: each holds replicas, but is not running. Start it")


def test_stock_controllers_must_be_a_minority() -> None:
    ready = dict.fromkeys((3001, 3002, 3003), True)
    everybody = cluster([broker(0), broker(1)], [*CONTROLLERS, controller(3003)])
    assert found(signals=ControllerSignals(ready, frozenset({3002})), image=everybody).ready
    readiness = found(signals=ControllerSignals(ready, frozenset({3002, 3003})), image=everybody)
    (gap,) = readiness.controllers
    assert gap.who == "controllers 3002, 3003"
    assert "stock" in gap.reason
