"""The steps of a hand-over, look by look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from migrator.handover.execute import BEGUN, HandoverRun, OperatorCommands, Picture, journal_beside
from migrator.handover.plan import LocalNode, MetadataDirectory, next_step
from migrator.rollout.ports import Observation
from tests.handover.test_plan import AWAY, HELD, OURS, ROLLING, STOCK, quorum
from tests.patience import PATIENCE_SECONDS

NODES = (1, 2, 3)


class Control(OperatorCommands):
    """Notes what it was asked for."""

    def __init__(self) -> None:
        super().__init__(None, None, lambda _: None)
        self.calls: list[str] = []

    async def stop(self, node_id: int) -> None:
        self.calls.append(f"stop {node_id}")

    async def start(self, node_id: int, property_file: Path) -> None:
        self.calls.append(f"start {node_id}")


class Run(HandoverRun):
    """A hand-over of three voters that sees what a script says. Who does not answer holds its directory or has left
    it."""

    def __init__(self, folder: Path, script: Iterable[tuple[Observation, tuple[int, ...]]], control: Control) -> None:
        super().__init__([property_file(folder, node) for node in NODES], ROLLING, control, tell=lambda _: None)
        self._script: Iterator[tuple[Observation, tuple[int, ...]]] = iter(script)

    async def look(self, *, ahead: bool = False) -> Picture:
        seen, left = next(self._script)
        nodes = tuple(
            LocalNode(node, HELD if node in left else MetadataDirectory(in_use=True), file_written=True)
            for node in NODES
        )
        return Picture(seen, nodes, tuple(next_step(node, seen, self._wanted) for node in nodes))


def property_file(folder: Path, node: int) -> Path:
    file = folder / f"controller-{node}.properties"
    voters = ",".join(f"{each}@localhost:{9090 + each}" for each in NODES)
    file.write_text(
        f"process.roles=controller\nnode.id={node}\ncontroller.quorum.voters={voters}\n"
        f"controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://localhost:{9090 + node}\n"
        f"log.dirs={folder / str(node)}\n"
    )
    return file


ALL = (quorum(OURS, OURS, OURS), ())
ONE_IS_BEHIND = (quorum(OURS, OURS, OURS, lags=(0, 0, 1)), ())
TO_THE_END = (
    (quorum(OURS, AWAY, OURS), ()),
    (quorum(OURS, AWAY, OURS), (2,)),
    (quorum(OURS, AWAY, OURS), ()),
    (quorum(OURS, STOCK, OURS), ()),
    (quorum(OURS, STOCK, AWAY), (3,)),
    (quorum(OURS, STOCK, STOCK), ()),
    (quorum(AWAY, STOCK, STOCK, leader=2), (1,)),
    (quorum(STOCK, STOCK, STOCK, leader=2), ()),
)


@pytest.mark.parametrize("while_it_stops", [(), (ALL, ONE_IS_BEHIND) * 3, (ONE_IS_BEHIND, ALL) * 3])
async def test_a_voter_that_takes_its_time_to_stop_is_the_only_one_that_is_stopped(
    while_it_stops: tuple[tuple[Observation, tuple[int, ...]], ...], tmp_path: Path
) -> None:
    """A moment in which another voter is a record behind does not mean that this one has stopped."""
    control = Control()
    await Run(tmp_path, (ALL, *while_it_stops, *TO_THE_END), control).run()
    assert control.calls == [f"{what} {node}" for node in (2, 3, 1) for what in ("stop", "start")]


async def test_after_an_interruption_the_voter_that_may_be_stopping_is_waited_for(tmp_path: Path) -> None:
    """A voter that is behind itself would be stopped while the other one stops."""
    control = Control()
    run = Run(tmp_path, (ONE_IS_BEHIND, ALL, *TO_THE_END), control)
    with journal_beside(run.sites[NODES[0]].file.ours) as journal:
        journal.append(0, BEGUN, "controller 2: stop this program", node="2", to="3.9.1")
    await run.run()
    assert control.calls == [f"{what} {node}" for node in (2, 3, 1) for what in ("stop", "start")]


@pytest.mark.parametrize("seconds", [0.0, PATIENCE_SECONDS])
async def test_a_check_looks_again_while_a_step_has_to_wait(seconds: float, tmp_path: Path) -> None:
    unread = (quorum(OURS, OURS, OURS, finished=None), ())
    run = Run(tmp_path, (ALL, ONE_IS_BEHIND, unread, ALL), Control())
    assert (await run.look_ahead(seconds)).only_waits is (not seconds)
