"""The bench of verify: what it makes is a pair of equal sides for the command, in so many rows."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.verify import main

PARTITIONS = 1_000
ROWS_OF_A_TOPIC = 2 + 10 * 5 + 1
"""Of one side: id and size, five fields of each partition, and two configs of every second topic."""


def test_a_small_size_is_equal_from_files(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    assert main(["--partitions", str(PARTITIONS), "--live-up-to", "0", "--json", str(file)]) == 0
    (measured,) = json.loads(file.read_text())
    assert (measured["source"], measured["equal"]) == ("files", True)
    assert measured["rows"] == 2 * ROWS_OF_A_TOPIC * PARTITIONS // 10
    assert measured["seconds"] > 0
    assert measured["peak_bytes"] > 100_000_000
