"""A drill that is interrupted ends everything it has started, and still writes its report."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from migrator.drill.cluster import MIGRATOR
from migrator.parts.processes import ChildProcess, port_is_open


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_drill_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    directory = tmp_path / "drill"
    command = [MIGRATOR, "drill", "--partitions", "50", "--dir", str(directory)]
    with ChildProcess("drill", command, output=tmp_path / "output") as drill:
        controller = directory / "cluster" / "controller-3001" / "controller.log"
        drill.wait_until(controller.exists, "a controller process", timeout_seconds=60)
        drill.send(number)
        assert drill.wait(timeout_seconds=60) == 130
    configuration = (directory / "cluster" / "zookeeper" / "zoo.cfg").read_text()
    port = re.search(r"clientPort=([0-9]+)", configuration)
    assert port is not None
    assert not port_is_open(int(port.group(1)))
    report = json.loads((directory / "report.json").read_text())
    assert report["held"] is False
    assert report["failure"] == "interrupted"


def test_a_directory_with_an_earlier_drill_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    command = [MIGRATOR, "drill", "--dir", str(tmp_path)]
    with ChildProcess("drill", command, output=tmp_path / "output") as drill:
        assert drill.wait(timeout_seconds=60) == 2
        assert "an earlier drill left its data there" in drill.output_text().replace("\n", " ")
