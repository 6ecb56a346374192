"""metadata.version: names, levels, and going back."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.errors import InvariantViolation
from migrator.records import metadata as m
from migrator.records.specs import SPECS
from migrator.records.versions import (
    LATEST_KNOWN,
    LATEST_SUPPORTED,
    RECORD_VERSIONS,
    VERSIONS,
    changes_records,
    parse_version,
    record_version,
    version_at,
)

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize(("release", "latest"), [("3.9.1", LATEST_SUPPORTED), ("4.1.1", LATEST_KNOWN)])
def test_the_table_is_that_of_stock_kafka(release: str, latest: int) -> None:
    """Up to the latest that the release calls stable; what 3.9 has above became something else in 4.0."""
    lines = (GOLDEN / f"stock-{release}" / "metadata-versions.txt").read_text().splitlines()
    stock = [line for line in lines if int(line.split()[0]) <= latest]
    types = (m.RegisterBrokerRecord, m.PartitionRecord, m.PartitionChangeRecord)
    ours = []
    for version in VERSIONS[int(stock[0].split()[0]) - 1 : latest]:
        highest = " ".join(str(record_version(kind, version.level)) for kind in types)
        ours.append(f"{version.level} {version.name} {str(version.changes_records).lower()} {highest}")
    assert ours == stock


def test_levels_have_no_gap_and_names_come_back() -> None:
    assert [version.level for version in VERSIONS] == list(range(1, LATEST_KNOWN + 1))
    for version in VERSIONS:
        assert parse_version(version.name) is version is version_at(version.level)


@pytest.mark.parametrize(
    ("text", "level"),
    [("3.9", 21), ("3.9-IV0", 21), ("3.9.1", 21), (" 3.6 ", 14), ("3.6-IV1", 13), ("3.0", 1), ("3.7", 19), ("4.0", 25)],
)
def test_kafkas_forms_are_understood(text: str, level: int) -> None:
    assert parse_version(text).level == level


@pytest.mark.parametrize("text", ["", "3", "2.8", "3.9-IV1", "latest", "21"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a metadata"):
        parse_version(text)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="has level 0"):
        version_at(0)


def test_every_record_type_has_versions_that_its_layout_has() -> None:
    for spec in SPECS:
        steps = RECORD_VERSIONS[spec.record_type]
        assert [version for _, version in steps] == list(range(spec.latest + 1))
        assert [level for level, _ in steps] == sorted({level for level, _ in steps})


def test_record_versions_at_levels() -> None:
    assert record_version(m.RegisterBrokerRecord, 8) == 2
    assert record_version(m.RegisterBrokerRecord, LATEST_SUPPORTED) == 3
    assert record_version(m.PartitionRecord, LATEST_SUPPORTED) == 1
    with pytest.raises(InvariantViolation, match="RegisterControllerRecord does not exist"):
        record_version(m.RegisterControllerRecord, 14)


def test_going_past_a_change_of_records_either_way() -> None:
    assert changes_records(21, 16)
    assert changes_records(16, 17)
    assert not changes_records(21, 17)
    assert not changes_records(18, 18)
