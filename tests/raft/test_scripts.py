"""Scripts in `testdata`: commands, and below each the transcript that it has to produce.

A script is a sequence of blocks: a command line, ``----``, the expected lines, an empty line. ``RAFT_REWRITE=1`` writes
what happens into the files instead; review the difference. Commands:

    cluster VOTERS [OBSERVERS]         begin anew
    log NODE EPOCHxCOUNT ... [epoch=E] fill a node's log by hand and boot it, in epoch E
    snapshot NODE OFFSET               a snapshot there, and the log begins with it
    campaign NODE                      time passes until the node stands for election
    tick NODE                          time passes until the node's deadline
    wait MILLISECONDS                  time passes for all; the routine of fetches is left out of the transcript
    deliver [to=A,B] [without=KIND]    deliver messages until none is left; others are lost
    cut NODE ... / mend                disconnect nodes / connect all
    gone NODE ...                      end nodes: requests to them fail
    propose NODE RECORDS               the leader appends a batch
    hold NODE / sync NODE              hold fsyncs back / let them end
    crash NODE                         lose what is not synced, boot
    resign NODE [SUCCESSOR]            the leader hands over
    shutdown NODE                      prepare to stop
    state                              role, epoch, log and high watermark of every node
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.raft import events as ev
from migrator.raft.states import ElectionState
from tests.raft.support.cluster import Cluster, Envelope

ROUTINE = ("Fetch from", "records from", "BeginQuorumEpoch", " ok")
SCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


class Script:
    """Runs the commands of one file."""

    def __init__(self) -> None:
        self.cluster = Cluster(1)

    def run(self, command: str) -> list[str]:
        name, *words = command.split()
        self.cluster.lines.clear()
        before = self.cluster
        commands: dict[str, Callable[..., object]] = {
            "cluster": self._cluster,
            "log": self._log,
            "snapshot": lambda node, offset: self.cluster[int(node)].take_snapshot(int(offset)),
            "campaign": lambda node: self.cluster.campaign(int(node)),
            "tick": lambda node: self.cluster.tick(int(node)),
            "deliver": self._deliver,
            "wait": self._wait,
            "cut": lambda *nodes: self.cluster.cut.update(map(int, nodes)),
            "gone": lambda *nodes: self.cluster.gone.update(map(int, nodes)),
            "mend": self.cluster.cut.clear,
            "propose": lambda node, records: self.cluster.propose(int(node), int(records)),
            "hold": lambda node: setattr(self.cluster[int(node)], "holds_syncs", True),
            "sync": self._sync,
            "crash": lambda node: self.cluster[int(node)].lose_power(),
            "resign": self._resign,
            "shutdown": lambda node: self.cluster[int(node)].step(ev.Shutdown()),
            "state": self._state,
        }
        commands[name](*words)
        assert before is self.cluster or name == "cluster"
        return list(self.cluster.lines)

    def _cluster(self, voters: str, observers: str = "0") -> None:
        self.cluster = Cluster(int(voters), int(observers))

    def _log(self, node: str, *runs: str) -> None:
        member = self.cluster[int(node)]
        known = [int(run.removeprefix("epoch=")) for run in runs if run.startswith("epoch=")]
        pairs = (run.split("x") for run in runs if "x" in run)
        member.write(*[(int(epoch), int(count)) for epoch, count in pairs])
        member.disk.election = ElectionState(max([member.log.last_epoch(), *known]))
        member.boot()

    def _deliver(self, *words: str) -> None:
        options = dict(word.split("=") for word in words)
        only = {int(node) for node in options.get("to", "").split(",") if node}
        without = options.get("without", "nothing")

        def want(envelope: Envelope) -> bool:
            is_addressed = not only or {envelope.source, envelope.target} <= only
            return is_addressed and without not in type(envelope.body).__name__

        self.cluster.deliver(want)

    def _wait(self, milliseconds: str) -> None:
        self.cluster.wait(int(milliseconds))
        self.cluster.lines = [line for line in self.cluster.lines if not any(word in line for word in ROUTINE)]

    def _sync(self, node: str) -> None:
        member = self.cluster[int(node)]
        member.holds_syncs = False
        member.finish_syncs()

    def _resign(self, node: str, successor: str | None = None) -> None:
        member = self.cluster[int(node)]
        member.step(ev.Resign(member.raft.epoch, int(successor) if successor else None))

    def _state(self) -> None:
        for node, member in self.cluster.members.items():
            raft, log = member.raft, member.log
            runs = "".join(f" {epoch}x{member.epochs().count(epoch)}" for epoch in sorted(set(member.epochs())))
            self.cluster.say(
                f"{node}: {raft.role.value} in epoch {raft.epoch}, leader {raft.leader_id},"
                f" log {log.start_offset()}..{log.end_offset()}{runs}, committed {raft.high_watermark}"
            )


def _blocks(text: str) -> list[tuple[str, str, list[str]]]:
    """(comments before it, command, expected lines) of each block."""
    found: list[tuple[str, str, list[str]]] = []
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        comments = [line for line in lines if line.startswith("#")]
        rest = [line for line in lines if not line.startswith("#")]
        if not rest:
            found.append(("\n".join(comments), "", []))
        else:
            expected = rest[rest.index("----") + 1 :] if "----" in rest else []
            found.append(("\n".join(comments), rest[0], expected))
    return found


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    script, rewritten = Script(), []
    for comment, command, expected in _blocks(path.read_text()):
        happened = script.run(command) if command else []
        rewritten.append("\n".join(part for part in (comment, command, "----" if command else "", *happened) if part))
        if "RAFT_REWRITE" not in os.environ:
            assert happened == expected, f"{path.name}: {command}"
    if "RAFT_REWRITE" in os.environ:
        path.write_text("\n\n".join(rewritten) + "\n")
