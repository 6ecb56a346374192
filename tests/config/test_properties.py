from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.config.properties import decoded, encoded, parse_properties, shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a: b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a  =  b  ", {"a": "b  "}),
        ("a", {"a": ""}),
        ("# a=b\n! c=d\n\n \t\n", {}),
        ("a=1\na=2", {"a": "2"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=one\\\n# not a comment", {"a": "one# not a comment"}),
        ("a=back\\\\\nb=c", {"a": "back\\", "b": "c"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("a=\\u00e9\\t.\\q", {"a": "é\t.q"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a==b", {"a": "=b"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=ends\\", {"a": "ends"}),
    ],
)
def test_reads_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


READER = """
import java.io.*;
import java.util.*;

class Reader {
    public static void main(String[] args) throws IOException {
        Properties read = new Properties();
        read.load(new FileInputStream(args[0]));
        for (String key : new TreeSet<>(read.stringPropertyNames())) {
            StringBuilder line = new StringBuilder();
            (key + "=" + read.getProperty(key)).chars().forEach(each -> line.append(each).append(' '));
            System.out.println(line);
        }
    }
}
"""


@pytest.mark.lane("test-all")
def test_java_itself_sees_the_same_characters_in_bytes_beyond_ascii(tmp_path: Path) -> None:
    content = b"utf8=\xc3\xa4\nlatin=\xe4\n# \xe4\n\xc3\xa4=1\nends=\xc3\xa0\xc3\x85\nescape=\\u00e4\\u4e2d\nall="
    content += bytes(each for each in range(1, 256) if each not in b"\n\r\\")
    program, file = tmp_path / "Reader.java", tmp_path / "server.properties"
    program.write_text(READER)
    file.write_bytes(content)
    said = subprocess.run(["java", str(program), str(file)], check=True, capture_output=True, timeout=120, text=True)
    lines = ["".join(chr(int(unit)) for unit in line.split()) for line in said.stdout.splitlines()]
    found = parse_properties(decoded(content))
    assert sorted(lines) == sorted(f"{key}={text}" for key, text in found.items())
    assert (found["utf8"], found["latin"]) == ("\u00c3\u00a4", "\u00e4")


@given(st.binary())
def test_bytes_that_became_text_come_back_as_they_were(content: bytes) -> None:
    assert encoded(decoded(content)) == content


def test_people_see_what_the_author_of_a_file_sees() -> None:
    assert shown(decoded("Bücher".encode())) == "Bücher"
    assert shown(decoded("Bücher".encode("latin-1"))) == "Bücher"
    assert shown("\u4e2d") == "\u4e2d"


def test_a_malformed_escape_names_its_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse_properties("a=b\nc=\\u12g4")


def _escape(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in text)


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8"))))
def test_whatever_is_written_escaped_is_read_back(values: dict[str, str]) -> None:
    # Characters beyond the basic plane stay as they are; all others are written as \\uXXXX.
    text = "\n".join(f"{_escape(key)}={_escape(value)}" for key, value in values.items())
    assert parse_properties(text) == values


@given(st.text())
def test_no_text_raises_anything_but_a_value_error(text: str) -> None:
    try:
        parse_properties(text)
    except ValueError as error:
        assert "line" in str(error)  # noqa: PT017
