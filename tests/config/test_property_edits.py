"""Edits of property files: only what is asked for changes, and Java reads what was meant."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migrator.config.properties import decoded, encoded, logical_keys, parse_properties
from migrator.config.property_edits import Edit, edited, file_of

FILE = """# The broker of rack 7

broker.id = 7
listeners=PLAINTEXT://:9092,\\
    SSL://:9093
! an old comment
log.dirs : /data/a
broker.id=8
"""


def test_a_key_keeps_its_place_and_all_others_are_untouched() -> None:
    assert edited(FILE, [Edit("log.dirs", "/data/b")]) == FILE.replace("log.dirs : /data/a", "log.dirs=/data/b")


@given(st.binary())
def test_a_new_key_changes_no_byte_of_the_others(comment: bytes) -> None:
    comment = comment.replace(b"\n", b"").replace(b"\r", b"")
    content = b"# " + comment + b"\na=" + "ä".encode() + b"\n"
    assert encoded(edited(decoded(content), [Edit("b", "ä")])) == content + b"b=\\u00e4\n"


def test_a_new_file_is_ascii_and_read_as_it_was_meant() -> None:
    properties = {"log.dirs": "/data/größe", "sasl.jaas.config": "\\ a\n", "empty": "", "blank": " x", "a=b": "\u4e2d"}
    assert file_of(properties).isascii()
    assert parse_properties(file_of(properties)) == properties


def test_of_a_doubled_key_the_one_that_counts_is_changed() -> None:
    assert edited(FILE, [Edit("broker.id", "9")]) == FILE.replace("broker.id=8", "broker.id=9")


def test_a_new_key_comes_last() -> None:
    assert edited(FILE, [Edit("node.id", "7")]) == FILE + "node.id=7\n"


def test_a_value_over_several_lines_is_one_entry() -> None:
    expected = FILE.replace("listeners=PLAINTEXT://:9092,\\\n    SSL://:9093", "listeners=SSL://:9093")
    assert edited(FILE, [Edit("listeners", "SSL://:9093")]) == expected


def test_a_key_is_taken_away_or_made_a_comment_wherever_it_stands() -> None:
    gone = edited(FILE, [Edit("broker.id")])
    assert gone == FILE.replace("broker.id = 7\n", "").replace("broker.id=8\n", "")
    commented = edited(FILE, [Edit("listeners", as_comment=True)])
    assert "#listeners=PLAINTEXT://:9092,\\\n#    SSL://:9093\n" in commented
    assert "listeners" not in parse_properties(commented)


@pytest.mark.parametrize("text", ["a=1", "a=1\\", "a=1\\\n", "a=1\r\nb=2\r\n", "a=1\n#\\", "", "\n", "a=1\\\\"])
def test_what_is_added_is_a_line_of_its_own(text: str) -> None:
    before, after = parse_properties(text), parse_properties(edited(text, [Edit("node.id", "7")]))
    assert after == {**before, "node.id": "7"}


TEXT = st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0x1F600), max_size=20)
LINES = st.lists(
    st.sampled_from(["a=1", "b = x", "#c=3", "! no", "", "  d: 4 ", "a=2\\", "   more", "e", "f\\=g=5", "\\u0061=6"]),
    max_size=8,
)


@given(lines=LINES, end=st.sampled_from(["\n", "\r\n"]), key=TEXT.filter(bool), value=TEXT)
@example(lines=["a=2\\"], end="\n", key="k", value=" v")
@example(lines=[], end="\n", key="#", value="\\")
def test_what_is_set_is_read_again_and_nothing_else_changes(lines: list[str], end: str, key: str, value: str) -> None:
    text = end.join(lines)
    before = parse_properties(text)
    assert parse_properties(edited(text, [Edit(key, value)])) == {**before, key: value}
    without = {name: kept for name, kept in before.items() if name != key}
    for edit in (Edit(key), Edit(key, as_comment=True)):
        assert parse_properties(edited(edited(text, [Edit(key, value)]), [edit])) == without


@given(lines=LINES, count=st.integers(1, 3))
def test_comments_and_order_stay(lines: list[str], count: int) -> None:
    text = "".join(f"{line}\n" for line in lines if not line.endswith("\\"))
    keys = [key for _, _, key in logical_keys(text)]
    changed = edited(text, [Edit(key, "new") for key in keys[:count]])
    assert [key for _, _, key in logical_keys(changed)] == keys
    comments = [line for line in text.splitlines() if line.startswith(("#", "!"))]
    assert [line for line in changed.splitlines() if line.startswith(("#", "!"))] == comments
