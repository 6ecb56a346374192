"""Command templates: words and quoting, proven by the shell that takes them apart."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migrator.rollout.executors.presets import PRESETS, TemplateError, check_value, render

HOSTILE = [
    *(
        "",
        " ",
        "a b",
        "'",
        '"',
        "$(touch owned)",
        "`id`",
        "${HOME}",
        "a;b",
        "a&&b",
        "|",
        "*",
        "~",
        "-rf",
        "!",
        "#",
        "\\",
    ),
]
texts = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=20) | st.sampled_from(HOSTILE)


@given(st.lists(texts, min_size=1, max_size=6))
@example(HOSTILE)
def test_a_shell_at_the_other_end_gets_every_value_back(values: list[str]) -> None:
    words = render("printf '%s\\0' {*words!q}", {"words": values})
    command = " ".join(["printf", "'%s\\0'", *words[2:]])
    ended = subprocess.run(["sh", "-c", command], capture_output=True, check=True)
    assert ended.stdout.decode().split("\0")[:-1] == values


@given(texts)
def test_a_value_is_one_word_as_it_is(text: str) -> None:
    assert render("cat -- {path} --to={path}", {"path": text}) == ["cat", "--", text, f"--to={text}"]


@given(texts)
def test_braces_of_a_value_are_not_filled_in(text: str) -> None:
    value = "{host}" + text
    assert render("{path} {*words}", {"path": value, "words": (value,), "host": "h"}) == [value, value]


def test_a_star_takes_a_variable_apart_and_fills_it_in() -> None:
    values = {"start": "'/opt/my kafka/run' {path}", "path": "/etc/a b", "sudo": ""}
    assert render("{*sudo} {*start}", values) == ["/opt/my kafka/run", "/etc/a b"]
    assert render("ssh h -- {*start!q}", values) == ["ssh", "h", "--", "'/opt/my kafka/run'", "'/etc/a b'"]


def test_other_braces_stay() -> None:
    assert render("get -o jsonpath={.metadata.uid} {{x}}", {"x": "1"}) == [
        "get",
        "-o",
        "jsonpath={.metadata.uid}",
        "{1}",
    ]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("cat {file}", "nothing is given for {file}"),
        ("cat 'x", "cannot be taken apart"),
        ("", "the command is empty"),
        ("{*none}", "the command is empty"),
        ("x{*words}", "word of its own"),
        ("{words}", "write {*words}"),
        ("{*outer}", "inside of another"),
    ],
)
def test_what_cannot_be_filled_in_is_refused(template: str, said: str) -> None:
    with pytest.raises(TemplateError) as refused:
        render(template, {"words": ("a",), "none": "", "outer": "{*none}"})
    assert said in str(refused.value)


@pytest.mark.parametrize("character", ["\n", "\r", "\0", "\x1b", "\x7f"])
def test_control_characters_are_refused(character: str) -> None:
    with pytest.raises(TemplateError, match="control character"):
        check_value("path", f"/etc/a{character}b")


def test_every_value_that_crosses_ssh_is_quoted() -> None:
    for name in ("ssh", "ssh-systemd"):
        for action, template in PRESETS[name].commands.items():
            behind = template.partition("-- {host} ")[2]
            unquoted = [word for word in behind.split() if word.startswith("{") and "!q}" not in word]
            assert not unquoted, (name, action)
