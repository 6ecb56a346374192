"""`migrator log dump`."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from migrator.cli.log import command
from migrator.log.errors import StorageError
from tests.log.support.builders import batch
from tests.log.support.golden import DYNAMIC, STOCK


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, ["dump", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_text_is_that_of_kafkas_tool() -> None:
    text = run(str(DYNAMIC / "bootstrap.checkpoint"))
    lines = text.splitlines()
    assert lines[1] == "KRaft bootstrap snapshot"
    assert lines[2].startswith("baseOffset: 0 lastOffset: 0 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1")
    assert 'SnapshotHeader {"version":0,"lastContainedLogTimestamp":0}' in lines[3]
    payload = '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"metadata.version","featureLevel":21}}'
    assert lines[5].endswith(f"headerKeys: [] payload: {payload}")


def test_json_is_one_object_a_record() -> None:
    objects = [orjson.loads(line) for line in run("--json", str(STOCK / "migrated.log")).splitlines()]
    assert [one["offset"] for one in objects] == list(range(len(objects)))
    assert {one["leaderEpoch"] for one in objects} == {1}
    assert objects[0]["type"] == "LeaderChange"
    assert objects[0]["control"]
    assert objects[1]["data"] == {"name": "Bootstrap records"}
    assert {"BEGIN_TRANSACTION_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"} <= {one["type"] for one in objects}


@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_damage_names_file_and_byte_after_what_is_whole(tmp_path: Path, flag: list[str]) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(batch(0) + batch(1)[:-1])
    result = CliRunner().invoke(command, ["dump", *flag, str(path)])
    assert isinstance(result.exception, StorageError)
    assert result.exception.exit_code == 2
    assert str(result.exception).startswith(f"{path}: damaged at byte {len(batch(0))}: a batch of 72 bytes is cut")
    assert "NO_OP_RECORD" in result.output
