"""The benches of verify: what they make is a pair of equal sides for the command, in so many rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.verify.kraft.files import read_image
from tests.bench import verify_log
from tests.bench.verify import main
from tests.bench.verify_inputs import config_records, write_inputs

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


def test_a_log_that_was_lengthened_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, metadata = write_inputs(tmp_path, 20)
    before = read_image(metadata)
    monkeypatch.setattr(verify_log, "SEGMENT_BYTES", 10_000)
    changes, configs = config_records(20, "y" * 100), config_records(20)
    size = verify_log.lengthen(metadata, changes, 200, configs)
    after = read_image(metadata)
    assert (after.topics, after.configs) == (before.topics, before.configs)
    assert after.provenance.offset == before.provenance.offset + 200 + len(configs)
    segments = list((metadata / DIRECTORY_NAME).iterdir())
    assert len(segments) > 1
    assert sum(path.stat().st_size for path in segments) == size
