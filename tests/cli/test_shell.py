"""Completion, the manual page, and a hint for a misspelt word."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from migrator.cli.main import COMMANDS, migrator
from migrator.errors import ExitCode
from tests.cli.test_examples import every_command
from tests.cli.test_main import MIGRATOR, run

KNOWN_REQUESTS = {"TH", "SH", "SS", "B", "TP", "PP", "nf", "fi"}


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        pytest.param("migrator ver", "verify", marks=pytest.mark.lane("test-all")),
        ("migrator status --wa", "--watch"),
        pytest.param("migrator xyz", "", marks=pytest.mark.lane("test-all")),
    ],
)
def test_bash_completes_commands_and_options(typed: str, completed: str) -> None:
    words = typed.split()
    script = f"""
        PATH={MIGRATOR.parent}:$PATH
        source <(migrator completion bash)
        COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}
        _migrator_completion migrator {words[-1]} {words[-2]}
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == completed


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_of_their_own(shell: str) -> None:
    answer = run("completion", shell)
    assert answer.returncode == ExitCode.OK
    assert "_MIGRATOR_COMPLETE" in answer.stdout


@pytest.mark.parametrize(
    ("typed", "hint"),
    [(("verfy",), "Did you mean 'verify'?"), (("status", "--wach"), "Did you mean '--watch'?")],
)
def test_a_misspelt_word_gets_a_suggestion(typed: tuple[str, ...], hint: str) -> None:
    answer = run(*typed)
    assert answer.returncode == ExitCode.REFUSED
    assert hint in answer.stderr


@pytest.fixture(scope="module")
def manual() -> str:
    return run("man").stdout


def test_the_manual_has_every_command_and_option(manual: str) -> None:
    plain = manual.replace("\\-", "-")
    for name, command in every_command():
        section = plain.split(f'.SS "migrator {name} ')[1].split("\n.SS")[0]
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[0] in section, (name, parameter.opts)
    assert plain.count("\n.SS ") == len(every_command())


def test_the_manual_is_well_formed(manual: str, tmp_path: Path) -> None:
    requests = {re.split(r"\s", line[1:])[0] for line in manual.splitlines() if line.startswith(".")}
    assert requests <= KNOWN_REQUESTS
    if shutil.which("groff"):
        page = tmp_path / "migrator.1"
        page.write_text(manual)
        done = subprocess.run(["groff", "-man", "-ww", "-z", page], capture_output=True, text=True, check=True)
        assert done.stderr == ""


@pytest.mark.lane("test-all")
def test_the_manual_names_commands_whose_packages_are_not_installed() -> None:
    without = "import sys; sys.modules['confluent_kafka'] = None; from migrator.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", without, "man"], capture_output=True, text=True, check=True)
    names = [name.replace("-", "\\-") for name in migrator.list_commands(click.Context(migrator))]
    assert all(f'.SS "migrator {name}' in done.stdout for name in names)
    assert "This command needs confluent_kafka" in done.stdout
    assert set(COMMANDS) == set(migrator.list_commands(click.Context(migrator)))
