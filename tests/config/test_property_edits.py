"""Edits of property files: only what is asked for changes, Java reads what was meant, and all can be taken back."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migrator.config.properties import decoded, encoded, parse_properties
from migrator.config.property_edits import Edit, edited, file_of, original, settled, without_keys

FILE = """# The broker of rack 7

broker.id = 7
listeners=PLAINTEXT://:9092,\\
    SSL://:9093
! an old comment
log.dirs : /data/a
broker.id=8
"""


def test_a_key_keeps_its_place_and_all_others_are_untouched() -> None:
    new = "#migrator added: log.dirs\nlog.dirs=/data/b\n#migrator set aside: log.dirs : /data/a"
    assert edited(FILE, [Edit("log.dirs", "/data/b")]) == FILE.replace("log.dirs : /data/a", new)
    assert settled(edited(FILE, [Edit("log.dirs", "/data/b")])) == FILE.replace(
        "log.dirs : /data/a", "log.dirs=/data/b\n#log.dirs : /data/a"
    )


@given(st.binary())
def test_a_new_key_changes_no_byte_of_the_others(comment: bytes) -> None:
    comment = comment.replace(b"\n", b"").replace(b"\r", b"")
    content = b"# " + comment + b"\na=" + "ä".encode() + b"\n"
    assert encoded(edited(decoded(content), [Edit("b", "ä")])) == content + b"#migrator added: b\nb=\\u00e4\n"


def test_a_new_file_is_ascii_and_read_as_it_was_meant() -> None:
    properties = {"log.dirs": "/data/größe", "sasl.jaas.config": "\\ a\n", "empty": "", "blank": " x", "a=b": "\u4e2d"}
    assert file_of(properties).isascii()
    assert parse_properties(file_of(properties)) == properties


def test_of_a_doubled_key_the_one_that_counts_is_changed() -> None:
    assert parse_properties(edited(FILE, [Edit("broker.id", "9")]))["broker.id"] == "9"


def test_a_new_key_comes_last() -> None:
    assert edited(FILE, [Edit("node.id", "7")]) == f"{FILE}#migrator added: node.id\nnode.id=7\n"
    again = edited(edited(FILE, [Edit("node.id", "7")]), [Edit("node.id", "8")])
    assert again == f"{FILE}#migrator added: node.id\nnode.id=8\n"


def test_a_key_is_set_aside_wherever_it_stands_with_all_of_its_lines() -> None:
    aside = edited(FILE, [Edit("listeners"), Edit("broker.id")])
    assert "#migrator set aside: listeners=PLAINTEXT://:9092,\\\n#migrator set aside:     SSL://:9093\n" in aside
    assert parse_properties(aside) == {"log.dirs": "/data/a"}


def test_what_was_written_since_counts_more_than_what_was_set_aside() -> None:
    since = "a=3\n" + edited("a=1\na=2\n", [Edit("a")])
    assert original(since) == "a=3\na=1\na=2\n"
    again = edited(since, [Edit("a")])
    assert original(again) == "a=3\n#a=1\n#a=2\n"
    assert original(edited(again, [Edit("a", "3")])) == original(again)


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("a=1\n#migrator added: b\n#b=2\nb=3\n", "a=1\n#b=2\nb=3\n"),
        ("#migrator added: b\nc=3\n", "c=3\n"),
        ("a=1\\\n#migrator added: b\nb=2\n", "a=1\\\n#migrator added: b\nb=2\n"),
        ("a=1\\\n#migrator set aside: b=2", "a=1\\\n#migrator set aside: b=2"),
        (" #migrator set aside: b=2\n", " #migrator set aside: b=2\n"),
        ("#migrator set aside:b=2", "b=2"),
    ],
    ids=["the entry has gone", "another entry", "a value", "a value at the end", "quoted", "an editor took the space"],
)
def test_a_mark_counts_only_for_what_it_was_written_for(text: str, before: str) -> None:
    assert original(text) == before


def test_keys_are_taken_out_and_the_rest_stays_as_it_is() -> None:
    text = "# of a\r\na=1,\\\r\n  2\r\n\nb : 3\n a=4\rc=5"
    assert without_keys(text, lambda key: key == "a") == "# of a\r\n\nb : 3\nc=5"
    assert without_keys(text, lambda _key: False) == text


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
    new = edited(edited(text, [Edit(key, value)]), [Edit(key)])
    assert parse_properties(new) == without
    assert original(new) == text
