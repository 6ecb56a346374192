"""The rows without ZooKeeper: all of them are measured on a small cluster, and what a file has is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import results
from tests.bench.__main__ import main
from tests.bench.kraft import ROWS

PARTITIONS = 100
OF_ONE_BROKER = 30


def test_a_broker_goes_and_the_leader_dies_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "commit", lambda: "commit")  # whatever the work tree is
    file = tmp_path / "kraft.tsv"
    command = ("--kraft", "--peers", "ours", "--partitions", str(PARTITIONS), "--lines", str(file))
    assert main(command) == 0
    measured = file.read_text(encoding="utf-8")
    lines = [line.split("\t") for line in measured.splitlines()[1:]]
    assert [line[3] for line in lines] == ["passed"] * len(ROWS)
    figures = [dict(word.split("=") for word in line[5].split()) for line in lines]
    assert [each["partitions"] for each in figures] == [str(OF_ONE_BROKER)] * 2 + ["0"] * 2
    assert [each["records"] for each in figures] == [each["partitions"] for each in figures], "each once"
    assert [each["fenced"] for each in figures] == ["0"] * len(ROWS)
    assert figures[2]["epochs"] != "0"
    assert main(command) == 0
    assert file.read_text(encoding="utf-8") == measured
