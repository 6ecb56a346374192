"""The gates of `migrator gates finish`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.migration.machine.states import PublicState
from migrator.node.migration.status import running_gate
from tests.migration.support.builders import broker, cluster


@pytest.mark.parametrize(
    ("fenced", "zookeeper_mode", "is_open"), [(False, False, True), (True, False, False), (True, True, True)]
)
def test_a_broker_in_kraft_mode_that_is_down_is_named(fenced: bool, zookeeper_mode: bool, is_open: bool) -> None:
    image = cluster([broker(1), replace(broker(2, migrating=zookeeper_mode), fenced=fenced)], [])
    (gate,) = running_gate(PublicState.DUAL_WRITE, image)
    assert gate.open is is_open
    assert ("serve: 2" in gate.what) is not is_open


def test_behind_the_end_nobody_waits_for_it() -> None:
    assert running_gate(PublicState.FINISHED, cluster([replace(broker(2, migrating=False), fenced=True)], [])) == ()
