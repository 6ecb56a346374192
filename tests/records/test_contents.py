"""A follower decodes the leader's records before it writes them."""

from __future__ import annotations

from random import Random

import pytest

from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.contents import check_contents
from migrator.records.control import LeaderChange, build_control_batch
from migrator.records.errors import CorruptRecordsError
from migrator.records.metadata import NoOpRecord
from migrator.records.versions import LATEST_SUPPORTED
from tests.hostile.batches import hostile_values

GOOD = build_batch(encode_all([NoOpRecord()], LATEST_SUPPORTED), timestamp_ms=1)


def test_whole_batches_of_known_records_pass() -> None:
    check_contents(GOOD + build_control_batch([LeaderChange(1, (), ())], timestamp_ms=1, base_offset=1))


@pytest.mark.parametrize("seed", range(20))
def test_a_record_that_does_not_decode_is_found_behind_a_good_checksum(seed: int) -> None:
    """Frame version, type, version, lengths, varints."""
    bad = build_batch(hostile_values(Random(seed)), timestamp_ms=1, base_offset=1)
    with pytest.raises(CorruptRecordsError):
        check_contents(GOOD + bad)


def test_a_control_record_of_an_unknown_type_is_found() -> None:
    bad = build_batch([b"\0\0"], timestamp_ms=1, base_offset=1, control_keys=[b"\0\0\0\x09"])
    with pytest.raises(CorruptRecordsError):
        check_contents(bad)
