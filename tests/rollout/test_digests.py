"""The digest of a file with passwords is in no argument of any process: everybody on a host sees those, and sudo's log
keeps them. With it, whoever knows the rest of the file can try passwords."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import pytest

from migrator.errors import OperatorError
from migrator.rollout.executors.presets import PRESETS
from migrator.rollout.executors.scripts import COPY, READ, READ_GROWING, WRITE, head_of
from migrator.rollout.ports import ExecutorError, FileChangedError
from tests.rollout.support.hosts import Hands, digest, node

OLD, NEW = b"zookeeper.ssl.keystore.password=a\n", b"zookeeper.ssl.keystore.password=b\n"
DIGESTS = (digest(OLD), digest(NEW))
PROGRAMS = re.findall(
    r"\w+", "cat cp cut env head id ls mktemp mv readlink rm setpriv sh sha256sum stat su sync tr true"
)
KAFKA = 65534
SHELLS = ["dash", "bash"]
"""busybox starts few programs: its own are a part of it."""


def recorders(directory: Path) -> Path:
    """Programs that note their words, and do what they always do.

    :returns: where the words are.
    """
    said, directory = directory / "said", directory / "bin"
    directory.mkdir()
    said.touch()
    said.chmod(0o666)
    for name in PROGRAMS:
        program = directory / name
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@" >>{said}\nexec {shutil.which(name)} "$@"\n')
        program.chmod(0o755)
    return said


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("place", ["of this user", "of another user", "backup elsewhere"])
def test_no_process_of_the_scripts_has_it(public: Path, shell: str, place: str) -> None:
    if place != "of this user" and os.geteuid() != 0:
        pytest.skip("only root acts for somebody else")
    if shutil.which(shell) is None and "CI" not in os.environ:
        pytest.skip(f"there is no {shell} here")
    said, conf, kept = recorders(public), public / "conf", public / "kept"
    path, backup = conf / "server.properties", (kept if place == "backup elsewhere" else conf) / "before"
    for directory in (conf, kept):
        directory.mkdir()
    path.write_bytes(OLD)
    if place != "of this user":
        for owned in (conf, path):
            os.chown(owned, KAFKA, KAFKA)

    def runs(script: str, *words: object, sends: bytes = b"") -> bytes:
        command = [str(shutil.which(shell)), "-c", script, "migrator", *map(str, words)]
        environment = {"PATH": str(public / "bin")}
        return subprocess.run(command, input=sends, env=environment, capture_output=True, check=True).stdout

    assert runs(READ, path).endswith(OLD)
    assert runs(READ_GROWING, path).endswith(OLD)
    runs(WRITE, path, backup, sends=head_of(*DIGESTS) + NEW)
    assert (path.read_bytes(), backup.read_bytes()) == (NEW, OLD)
    runs(COPY, public / "copy", sends=head_of("absent", digest(NEW)) + NEW)
    words = said.read_text()
    assert str(path) in words
    assert "sha256sum" in words.split("\n")
    assert not [known for known in DIGESTS if known in words]


@pytest.mark.parametrize("preset", [name for name in PRESETS if PRESETS[name].commands])
def test_no_word_that_a_preset_starts_has_it(tmp_path: Path, preset: str) -> None:
    """The test's transport only records the words that it should start."""
    said, brings = tmp_path / "said", tmp_path / "brings"
    brings.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{said}\ncat >>{tmp_path / "sent"}\n')
    brings.chmod(0o755)
    ways = {name: str(brings) for name in ("ssh", "kubectl", "sudo", "run_as") if name in PRESETS[preset].variables}
    there = node(tmp_path / "server.properties", pod="kafka-1", unit="kafka")
    commands = {"restart": "true", "incarnation": "true"} if preset == "ssh" else {}
    if preset == "local":
        commands["copy"] = f"{brings} " + PRESETS[preset].commands["copy"]
    hands = Hands(there, preset, commands, **ways)
    hands.write(NEW, OLD, f"{hands.path}.before")
    hands.copy(NEW)
    words = said.read_text()
    assert f"{hands.path}.before" in words
    assert not [known for known in DIGESTS if known in words]
    sent = head_of(*DIGESTS) + NEW + head_of("absent", digest(NEW)) + NEW
    assert (tmp_path / "sent").read_bytes() == sent


def test_a_command_of_the_operator_gets_it_where_it_asks(tmp_path: Path) -> None:
    said, sent = tmp_path / "said", tmp_path / "sent"
    word = f"sh -c 'echo \"$*\" >>{said}; cat >>{sent}' own {{path}}"
    hands = Hands(
        node(tmp_path / "f"),
        commands={"write": f"{word} {{expected}} {{wanted}} {{backup}}", "copy": f"{word} {{wanted}}"},
    )
    hands.write(NEW, OLD, f"{hands.path}.before")
    hands.copy(NEW)
    assert said.read_text().split() == [
        *(str(hands.path), *DIGESTS, f"{hands.path}.before"),
        *(str(hands.path), digest(NEW)),
    ]
    assert sent.read_bytes() == NEW + NEW


@pytest.mark.parametrize("quoted", ["", "!q"])
@pytest.mark.parametrize("action", ["write", "copy"])
def test_a_command_that_gives_our_script_digests_as_words_is_refused(tmp_path: Path, action: str, quoted: str) -> None:
    command = f"sh -c {{{action}_script{quoted}}} migrator {{path}} {{wanted{quoted}}}"
    with pytest.raises(OperatorError, match="takes digests by standard input") as refused:
        Hands(node(tmp_path / "f"), commands={action: command})
    assert refused.value.where == f"executors.default, {action}"


@pytest.mark.parametrize("way", ["", "env A=1 sh -c '\"$@\"' more "])
def test_a_command_that_brings_our_script_somewhere_works(tmp_path: Path, way: str) -> None:
    commands = {name: way + PRESETS["local"].commands[name].replace("{*sudo} ", "") for name in ("write", "copy")}
    hands = Hands(node(tmp_path / "f"), commands=commands)
    hands.copy(OLD)
    hands.write(NEW, OLD)
    assert hands.read() == NEW
    with pytest.raises(FileChangedError):
        hands.write(NEW, OLD)


@pytest.mark.parametrize("content", [b"", b"\n", b"\0\xff\r\n", b"migrator-sha256 a b\n" * 3, b"x" * 300_000])
@pytest.mark.parametrize("shell", [*SHELLS, "busybox sh"])
def test_the_content_behind_the_line_comes_as_it_is(tmp_path: Path, shell: str, content: bytes) -> None:
    if shutil.which(shell.split(maxsplit=1)[0]) is None and "CI" not in os.environ:
        pytest.skip(f"there is no {shell} here")
    commands = {name: f"{shell} -c {{{name}_script}} migrator {{path}}" for name in ("write", "copy")}
    hands = Hands(node(tmp_path / "f"), commands=commands)
    hands.copy(content)
    assert hands.path.read_bytes() == content
    hands.write(content + b"more", content)
    assert hands.path.read_bytes() == content + b"more"


@pytest.mark.parametrize("missing", [1, len(NEW), len(NEW) + 1, 70, 80, 87, 200])
@pytest.mark.parametrize("action", ["write", "copy"])
def test_an_input_that_is_cut_off_anywhere_changes_nothing(tmp_path: Path, action: str, missing: int) -> None:
    whole = len(head_of(digest(OLD) if action == "write" else "absent", digest(NEW)) + NEW)
    brings = f"sh -c 'head -c {max(0, whole - missing)} | \"$@\"' cut "
    hands = Hands(
        node(tmp_path / "f"), commands={action: brings + PRESETS["local"].commands[action].replace("{*sudo} ", "")}
    )
    if action == "write":
        hands.path.write_bytes(OLD)
    does = partial(hands.write, NEW, OLD) if action == "write" else partial(hands.copy, NEW)
    with pytest.raises(ExecutorError, match="did not arrive whole"):
        does()
    if action == "write":
        assert (hands.names, hands.path.read_bytes()) == (["f"], OLD)


def test_a_request_with_the_longest_command_passes_a_proxy_of_8_kib() -> None:
    """``kubectl exec`` puts each word into the address of one request."""
    name = "/var/lib/kafka/config/broker-of-a-cluster/server.properties"
    words = ["sh", "-c", WRITE, "migrator", name, f"{name}.before-migrate.20261126-0930-1a2b3c4d"]
    assert len(urlencode([("command", word) for word in words])) < 7500
