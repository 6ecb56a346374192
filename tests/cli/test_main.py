"""The command line as people and scripts meet it: exit codes, one clear sentence, nothing half done."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import subprocess
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NoReturn

import pytest

from migrator.cli.controller import _run
from migrator.cli.main import main
from migrator.config.load import load_settings
from migrator.errors import ExitCode, OperatorError
from migrator.log.bootstrap import read_bootstrap
from migrator.records.metadata import FeatureLevelRecord, UserScramCredentialRecord
from tests.patience import PATIENCE_SECONDS

CLUSTER_ID = "9egfFDzKSbaonHwNn88EuQ"
MIGRATOR = Path(sys.executable).with_name("migrator")
ROOT = Path(__file__).parents[2]
RELEASE = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", re.MULTILINE)


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As a shell runs it: once for each command here, because a process takes most of a second."""
    return subprocess.run([MIGRATOR, *arguments], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, from the words to the exit code."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["migrator", *arguments])
        patch.setattr(logging, "lastResort", logging.lastResort)
        with pytest.raises(SystemExit) as ended:
            main()
    assert isinstance(ended.value.code, int)
    return subprocess.CompletedProcess(arguments, ended.value.code, out.getvalue(), err.getvalue())


def property_file(directory: Path, **changes: str) -> Path:
    keys = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.voters": "1@127.0.0.1:9001",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:9001",
        "log.dirs": str(directory / "metadata"),
    }
    keys |= {key.replace("_", "."): text for key, text in changes.items()}
    file = directory / "controller.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
    return file


def test_the_version_stands_in_one_place_and_is_the_newest_of_the_changelog() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    answer = process("--version")
    assert answer.stdout == f"migrator, version {version}\n", "the installed package is older: run make setup"
    assert RELEASE.findall((ROOT / "CHANGELOG.md").read_text())[0] == version


def test_help_names_every_command() -> None:
    answer = run("--help")
    assert answer.returncode == ExitCode.OK
    assert all(name in answer.stdout for name in ("format", "controller", "status", "verify", "log", "drill"))


def test_a_deleted_working_directory_is_one_sentence(tmp_path: Path) -> None:
    deleted = 'mkdir "$1" && cd "$1" && rmdir "$1" && exec "$2" status --json'
    ended = subprocess.run(
        ["sh", "-c", deleted, "sh", tmp_path / "gone", MIGRATOR], capture_output=True, text=True, check=False
    )
    assert ended.returncode == ExitCode.REFUSED
    assert "the working directory cannot be used: No such file or directory" in ended.stderr
    assert "Change to a directory that is there" in json.loads(ended.stdout)["error"]["remedy"]


def test_format_prepares_once_and_refuses_twice(tmp_path: Path) -> None:
    file = property_file(tmp_path)
    first = process("format", "-c", str(file), "-t", CLUSTER_ID, "--release-version", "3.9")
    assert (first.returncode, "3.9-IV0" in first.stdout) == (ExitCode.OK, True), first.stderr
    second = run("format", "-c", str(file), "-t", CLUSTER_ID)
    assert second.returncode == ExitCode.REFUSED
    assert str(tmp_path / "metadata") in second.stderr
    assert "Traceback" not in second.stderr
    again = run("format", "-c", str(file), "-t", CLUSTER_ID, "--ignore-formatted")
    assert again.returncode == ExitCode.OK


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"process_roles": "broker,controller"}, "process.roles"),
        ({"create_topic_policy_class_name": "com.example.P"}, "create.topic.policy.class.name"),
        ({"node_id": "x"}, "node.id"),
    ],
)
def test_a_wrong_value_is_one_sentence_and_exit_code_2(tmp_path: Path, changes: dict[str, str], key: str) -> None:
    file = property_file(tmp_path, **changes)
    for command in (("controller", "-c", str(file)), ("format", "-c", str(file), "-t", CLUSTER_ID)):
        answer = run(*command)
        assert answer.returncode == ExitCode.REFUSED
        assert f"{file}: {key}" in answer.stderr
        assert len(answer.stderr.splitlines()) == 1


def test_a_controller_that_is_not_formatted_says_how(tmp_path: Path) -> None:
    answer = process("controller", "-c", str(property_file(tmp_path)))
    assert answer.returncode == ExitCode.REFUSED
    assert "migrator format" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_the_threads_of_a_controller_take_short_turns(tmp_path: Path) -> None:
    """Each system call of the event loop took up to 5 ms longer for each thread with a big request."""
    settings, _ = load_settings(property_file(tmp_path))
    before = sys.getswitchinterval()
    try:
        with pytest.raises(OperatorError, match="not formatted"):
            asyncio.run(_run(settings, ()))
        assert sys.getswitchinterval() < before / 10
    finally:
        sys.setswitchinterval(before)


def test_status_of_a_controller_that_does_not_run(tmp_path: Path) -> None:
    file = property_file(tmp_path)
    assert run("format", "-c", str(file), "-t", CLUSTER_ID).returncode == ExitCode.OK
    answer = process("status", "-c", str(file))
    assert answer.returncode == ExitCode.REFUSED
    assert "Start the controller" in answer.stderr


def test_verify_without_sides_says_what_is_missing() -> None:
    answer = process("verify")
    assert answer.returncode == ExitCode.REFUSED
    assert "--zookeeper" in answer.stderr


BOTH = ("--standalone", "--no-initial-controllers")


@pytest.mark.parametrize(
    ("voters", "options", "said"),
    [
        ("", (), "is not set, so an option has to name the voters"),
        ("", BOTH, "only one of these options"),
        ("", ("--initial-controllers", "1@h:1"), "is not id@host:port:directoryId"),
        ("", ("--standalone", "--release-version", "3.8"), "3.9-IV0"),
        ("1@127.0.0.1:9001", ("--standalone",), "is set, so the voters are those of the configuration"),
        (
            "1@127.0.0.1:9001",
            ("--initial-controllers", "1@h:1:JEXY6aqzQY-32P5TStzaFg"),
            "is set, so the voters are those of the configuration",
        ),
    ],
)
def test_format_refuses_what_would_leave_two_quorums(
    tmp_path: Path, voters: str, options: tuple[str, ...], said: str
) -> None:
    servers = {"controller_quorum_voters": voters, "controller_quorum_bootstrap_servers": "127.0.0.1:9001"}
    answer = run("format", "-c", str(property_file(tmp_path, **servers)), "-t", CLUSTER_ID, *options)
    assert answer.returncode == ExitCode.REFUSED, answer.stdout
    assert said in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "metadata").exists()


def test_format_makes_the_first_voter_of_a_quorum_that_grows(tmp_path: Path) -> None:
    servers = {"controller_quorum_voters": "", "controller_quorum_bootstrap_servers": "127.0.0.1:9001"}
    answer = run("format", "-c", str(property_file(tmp_path, **servers)), "-t", CLUSTER_ID, "--standalone")
    assert answer.returncode == ExitCode.OK, answer.stderr
    assert "The first voters are 1@127.0.0.1:9001:" in answer.stdout
    assert (tmp_path / "metadata" / "__cluster_metadata-0" / f"{0:020d}-{0:010d}.checkpoint").exists()


@pytest.mark.parametrize(("voters", "warned"), [("1@127.0.0.1:9001", True), ("", False)])
def test_format_warns_of_voters_that_an_empty_disk_would_go_by(tmp_path: Path, voters: str, warned: bool) -> None:
    """Wiped disks of a majority would elect a leader without any log, and a survivor follows it."""
    servers = {"controller_quorum_voters": voters, "controller_quorum_bootstrap_servers": "127.0.0.1:9001"}
    file = property_file(tmp_path, **servers)
    answer = run("format", "-c", str(file), "-t", CLUSTER_ID, "--no-initial-controllers")
    assert answer.returncode == ExitCode.OK, answer.stderr
    assert ("controller.quorum.voters is set" in answer.stderr) is warned


def test_format_takes_its_options_as_scripts_give_them_to_kafkas_tool(tmp_path: Path) -> None:
    """``-t=ID -c=F -r=MV -g --add-scram``, as Strimzi and cp-ansible write them."""
    file = property_file(tmp_path)
    scram = "SCRAM-SHA-512=[name=admin,password=never-shown]"
    done = run("format", f"-t={CLUSTER_ID}", f"-c={file}", "-r=3.8", "-g", "--add-scram", scram)
    assert done.returncode == ExitCode.OK, done.stderr
    assert "with metadata.version 3.8-IV0" in done.stdout
    first = read_bootstrap(tmp_path / "metadata")
    assert first is not None
    level, credential = first
    assert isinstance(credential, UserScramCredentialRecord)
    assert (credential.name, credential.mechanism) == ("admin", 2)
    assert level == FeatureLevelRecord("metadata.version", 20)
    assert run("format", f"-t={CLUSTER_ID}", f"-c={file}", "-r=3.8", "-g").returncode == ExitCode.OK


def test_format_says_which_of_two_credentials_counts(tmp_path: Path) -> None:
    """Kafka's tool writes both, and the last one counts."""
    twice = [word for text in "ab" for word in ("-S", f"SCRAM-SHA-256=[name=a,password={text}-never-shown]")]
    other = ("-S", 'SCRAM-SHA-512=[name=a,password="never,shown"]')
    done = run("format", f"-t={CLUSTER_ID}", "-c", str(property_file(tmp_path)), *twice, *other)
    assert done.returncode == ExitCode.OK, done.stderr
    assert "warning: --add-scram: SCRAM-SHA-256 of a is given 2 times: the last one counts" in done.stderr
    assert done.stderr.count("--add-scram") == 1
    assert "never" not in done.stdout + done.stderr
    assert len(read_bootstrap(tmp_path / "metadata") or ()) == 4


@pytest.mark.parametrize(
    ("listed", "warned"), [("127.0.0.1:9001", False), ("127.0.0.1:9999", True), ("another:9001", True)]
)
def test_format_warns_of_a_list_in_which_this_controller_is_elsewhere(
    tmp_path: Path, listed: str, warned: bool
) -> None:
    file = property_file(tmp_path, controller_quorum_voters="", controller_quorum_bootstrap_servers="127.0.0.1:9001")
    voters = f"1@{listed}:JEXY6aqzQY-32P5TStzaFg,2@another:7:MvDxzVmcRsaTz33bUuRU6A"
    done = run("format", "-c", str(file), "-t", CLUSTER_ID, "--initial-controllers", voters)
    assert done.returncode == ExitCode.OK, done.stderr
    assert (f"look for node 1 at {listed}, and {file} has CONTROLLER at 127.0.0.1:9001" in done.stderr) is warned


@pytest.mark.parametrize(
    ("credential", "release", "fault"),
    [
        ("SCRAM-SHA-1=[name=a,password=hidden]", "3.8", "the mechanism is none of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-256=name=a,password=hidden", "3.8", "it has another form"),
        ("SCRAM-SHA-256=[password=hidden]", "3.8", "it has no name"),
        ("SCRAM-SHA-256=[name=a]", "3.8", "either password or saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=hidden,saltedpassword=hidden]", "3.8", "either password or saltedpassword"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=hidden]", "3.8", "saltedpassword and no salt"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=hidden,salt=?]", "3.8", "salt is not Base64"),
        ("SCRAM-SHA-256=[name=a,password=hidden,iterations=4095]", "3.8", "iterations is no number from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,name=b,password=hidden]", "3.8", "it has name twice"),
        ("SCRAM-SHA-256=[name=a,password=hidden,color=red]", "3.8", "between [ and ]"),
        ("SCRAM-SHA-256=[name=a,password=hidden,b]", "3.8", "A value with a comma stands in quotation marks"),
        ("SCRAM-SHA-256=[name=a,password=hidden]", "3.5-IV1", "SCRAM credentials need metadata.version 3.5-IV2"),
    ],
)
def test_a_credential_of_another_form_is_refused_and_not_repeated(
    tmp_path: Path, credential: str, release: str, fault: str
) -> None:
    refused = run("format", "-t", CLUSTER_ID, "-c", str(property_file(tmp_path)), "-r", release, "-S", credential)
    assert refused.returncode == ExitCode.REFUSED
    assert fault in refused.stderr
    assert "--add-scram" in refused.stderr
    assert "hidden" not in refused.stderr
    assert not (tmp_path / "metadata" / "meta.properties").exists()


@pytest.mark.parametrize("words", [[], ["rollout"], ["quorum"]])
def test_a_group_without_a_subcommand_shows_its_help_once(words: list[str]) -> None:
    answer = run(*words)
    assert answer.returncode == ExitCode.REFUSED
    assert answer.stderr.count("Usage: ") == 1
    assert "Commands:\n" in answer.stderr
    assert json.loads(run(*words, "--json").stdout)["error"]["exit_code"] == ExitCode.REFUSED


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["status", "-c", "/no/such/file", "--json"], "does not exist"),
        (["rollout", "status", "-i", "/no/such/file", "--json"], "does not exist"),
        (["status", "--json"], "no controller is named"),
        (["preflight", "--json", "--no-such-option"], "--no-such-option"),
    ],
)
def test_a_script_that_asks_for_json_gets_the_error_as_json(words: list[str], what: str) -> None:
    answer = run(*words)
    error = json.loads(answer.stdout)["error"]
    assert error.keys() == {"what", "where", "remedy", "exit_code"}
    assert what in "{where} {what} {remedy}".format(**error)
    assert answer.returncode == error["exit_code"] == ExitCode.REFUSED
    assert what in answer.stderr, "people read it as before"
    assert run(*(word for word in words if word != "--json")).stdout == ""


@pytest.mark.parametrize("command", ["drill", "verify"])
def test_a_command_without_its_packages_names_the_extra_and_the_image(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be installed in the image of a controller."""

    def import_module(name: str) -> NoReturn:
        raise ModuleNotFoundError(name, name="confluent_kafka" if name.endswith("drill") else "pyspark")

    monkeypatch.setattr("importlib.import_module", import_module)
    ended = run(command, "--help")
    assert ended.returncode == ExitCode.REFUSED
    assert f"the extra [{command}]" in ended.stderr
    assert "the image 'tools'" in ended.stderr
