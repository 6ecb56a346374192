"""Executors with real processes and real files: on this machine, and over a real ssh to it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.errors import OperatorError
from migrator.rollout.executors import executors
from migrator.rollout.executors.local_process import LOG_BYTES
from migrator.rollout.executors.presets import PRESETS
from migrator.rollout.ports import ExecutorError, FileChangedError, HostUnreachableError, NotRegularError, Output
from tests.lanes import examples
from tests.patience import PATIENCE_SECONDS
from tests.rollout.support.hosts import SERVER, Hands, digest, end, executor, node, running, server
from tests.rollout.support.sshd import LoopbackSshd, require_sshd

SECRET = "s3cr3t-of-this-test"
CONTENT = f"# ünï\nssl.keystore.password={SECRET}\n".encode()
NAMES = st.text(st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="/"), min_size=1, max_size=30)
HOSTILE = ["$(touch owned) `touch owned`", "'; touch owned; ' \" *", "-n  {host} \\ #"]
WORDED = {"incarnation": "true", "restart": "true"}
"""Commands that the preset ``ssh`` leaves to the inventory."""


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSshd]:
    require_sshd()
    with LoopbackSshd(tmp_path_factory.mktemp("sshd")) as found:
        yield found


@pytest.fixture(params=["local", pytest.param("ssh", marks=pytest.mark.lane("test-all"))])
def hands(request: pytest.FixtureRequest, tmp_path: Path) -> Hands:
    """Their file is not there yet."""
    if request.param == "local":
        return Hands(node(tmp_path / "server.properties"))
    ssh = request.getfixturevalue("sshd").ssh
    return Hands(node(tmp_path / "server.properties", "127.0.0.1"), "ssh", WORDED, ssh=ssh)


def test_a_file_comes_and_goes_whole(hands: Hands) -> None:
    assert hands.read() is None
    hands.write(CONTENT, None)
    assert hands.read() == CONTENT
    hands.path.chmod(0o640)
    backup = f"{hands.path}.before"
    hands.write(b"", CONTENT, backup)
    assert (hands.read(), hands.read(backup)) == (b"", CONTENT)
    big = bytes(range(256)) * 4000
    hands.write(big, b"", backup)
    assert hands.read() == big
    assert hands.read(backup) == CONTENT, "the first backup stays"
    assert {stat.S_IMODE(Path(file).stat().st_mode) for file in (hands.path, backup)} == {0o640}
    assert hands.names == ["server.properties", "server.properties.before"]


def test_a_file_that_somebody_changed_is_left_alone(hands: Hands) -> None:
    hands.path.write_bytes(CONTENT)
    for before in (b"other", None):
        with pytest.raises(FileChangedError):
            hands.write(b"new", before, f"{hands.path}.before")
    assert (hands.names, hands.read()) == ([hands.path.name], CONTENT)
    hands.path.unlink()
    with pytest.raises(FileChangedError):
        hands.write(b"new", CONTENT)
    assert hands.names == []


def test_a_link_stays_a_link(hands: Hands) -> None:
    target = hands.path.parent / "real.properties"
    target.write_bytes(CONTENT)
    hands.path.symlink_to(target.name)
    backup = hands.path.with_name("kept")
    hands.write(b"new", CONTENT, str(backup))
    assert hands.path.is_symlink()
    assert (target.read_bytes(), backup.read_bytes()) == (b"new", CONTENT)
    assert backup.stat().st_mode == target.stat().st_mode


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=NAMES)
@pytest.mark.parametrize("hands", ["local"], indirect=True)
def test_any_path_is_a_name_and_nothing_else(hands: Hands, drawn: str) -> None:
    if drawn not in {".", ".."}:
        _there_and_back(hands, drawn.encode()[:60].decode("utf-8", "ignore"))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_path_is_a_name_and_nothing_else(hands: Hands, name: str) -> None:
    _there_and_back(hands, name)
    assert not list(hands.path.parent.rglob("owned"))
    assert not Path("owned").exists()
    assert not (Path.home() / "owned").exists()


def _there_and_back(hands: Hands, name: str) -> None:
    path = hands.path.parent / "directory of $HOME" / name
    path.parent.mkdir(exist_ok=True)
    hands.write(CONTENT, None, path=str(path))
    hands.write(b"new", CONTENT, f"{path}.before", path=str(path))
    assert hands.read(str(path)) == b"new"
    assert sorted(path.parent.iterdir()) == sorted([path, Path(f"{path}.before")])
    for file in path.parent.iterdir():
        file.unlink()


@pytest.mark.parametrize("path", ["/etc/a\nb", "/etc/a\0b", "etc/relative"])
def test_a_path_that_is_none_is_refused(hands: Hands, path: str) -> None:
    with pytest.raises(ExecutorError):
        hands.read(path)


def test_words_arrive_as_they_are(hands: Hands) -> None:
    words = ["a b", "$(id)", "'", '"', "", "-x", "ü", "*", "{path}", "a\\b"]
    output = hands.run("printf", "<%s>", *words)
    assert (output.exit_code, output.text) == (0, "".join(f"<{word}>" for word in words))


def test_an_exit_code_and_both_streams_come_back(hands: Hands) -> None:
    output = hands.run("sh", "-c", "echo out; echo err >&2; exit 7")
    assert (output.exit_code, output.text, output.errors) == (7, "out\n", "err\n")


@pytest.mark.parametrize(("options", "shown"), [((), "'head pipe'"), (("-n", "1"), "'head'")])
def test_a_command_that_takes_long_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], shown: str
) -> None:
    """The command reads lines from a pipe, and gets one with each line that is said about it."""
    monkeypatch.setattr(executors, "SAY_SECONDS", 0.01)
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    pipe, said = os.open("pipe", os.O_RDWR), list[str]()

    def tell(line: str) -> None:
        said.append(line)
        os.write(pipe, b"\n")

    on = node(tmp_path / "server.properties")
    asyncio.run(executor(on, "local", tell=tell).run(on, ("head", *options, "pipe"), seconds=PATIENCE_SECONDS))
    os.close(pipe)
    assert said[0].startswith(f"still waits for {shown} of {on.name} on {on.host}, at most ")


def test_output_is_bounded_and_its_end_is_kept(hands: Hands) -> None:
    output = hands.run("sh", "-c", "yes | head -c 20000000; echo; echo last")
    assert len(output.text) <= 1 << 22
    assert output.text.endswith("last\n")


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    hands = Hands(node(tmp_path / "server.properties"))
    with pytest.raises(ExecutorError, match="still ran after"):
        hands.run("sh", "-c", 'sleep 4711 & exec sleep "$0"', "4712", seconds=1.0)
    assert running("sleep", "4711") == running("sleep", "4712") == []


def test_content_that_is_cut_off_changes_nothing(tmp_path: Path) -> None:
    """ssh breaks in the middle: what writes sees the end of its input, and nothing else."""
    cut = PRESETS["local"].commands["write"].replace("{*sudo}", "sh -c 'head -c 5 | \"$@\"' cut")
    hands = Hands(node(tmp_path / "server.properties"), commands={"write": cut})
    hands.path.write_bytes(CONTENT)
    with pytest.raises(ExecutorError, match="did not arrive whole"):
        hands.write(b"new content", CONTENT)
    assert (hands.names, hands.read()) == ([hands.path.name], CONTENT)


def test_a_disk_that_is_full_changes_nothing(tmp_path: Path) -> None:
    """The limit on the size of a file stands for the disk: what writes beyond it is told so in the middle."""
    full = Hands(node(tmp_path / "server.properties"), sudo="sh -c 'ulimit -f 1; exec \"$@\"' full")
    full.path.write_bytes(CONTENT)
    with pytest.raises(ExecutorError):
        full.write(b"x" * 100_000, CONTENT, f"{full.path}.before")
    assert (full.names, full.read()) == ([full.path.name], CONTENT)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as somebody else")
def test_a_process_of_somebody_else_is_named(public: Path) -> None:
    if any(not above.stat().st_mode & stat.S_IXOTH for above in (Path(sys.prefix), *Path(sys.prefix).parents)):
        pytest.skip("nobody else may enter the directory of this environment")
    hands = Hands(node(public / "conf" / "server.properties"))
    hands.path.parent.mkdir(mode=0o755)
    hands.start()
    try:
        as_nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all "
        stop = PRESETS["local"].commands["stop"].replace("{python} -m", as_nobody + "{python} -P -m")
        with pytest.raises(ExecutorError) as failed:
            Hands(hands.node, commands={"stop": stop}).stop()
        assert failed.value.output is not None
        assert re.search(r"this user may not end process \d+", failed.value.output.errors)
        hands.path.touch()
        hands.path.parent.chmod(0o700)
        with pytest.raises(ExecutorError) as failed:
            Hands(hands.node, commands={"stop": stop}).stop()
        assert failed.value.output is not None
        assert f"this user may not look at {hands.path}: Permission denied" in failed.value.output.errors
    finally:
        hands.stop()


def test_a_reading_that_is_cut_off_is_noticed(tmp_path: Path) -> None:
    cut = "sh -c '\"$@\" | head -c 90' cut " + PRESETS["local"].commands["read"].replace("{*sudo} ", "")
    hands = Hands(node(tmp_path / "server.properties"), commands={"read": cut})
    hands.path.write_bytes(CONTENT)
    with pytest.raises(ExecutorError, match="another digest"):
        hands.read()


def test_a_plain_cat_will_do(tmp_path: Path) -> None:
    hands = Hands(node(tmp_path / "server.properties"), commands={"read": "cat {path}"})
    hands.path.write_bytes(CONTENT)
    assert hands.read() == CONTENT


def test_content_is_in_no_argument_and_in_no_message(hands: Hands) -> None:
    seen: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for process in psutil.Process().children(recursive=True):
                try:
                    seen.add("\0".join([*process.cmdline(), *process.environ().values()]))
                except psutil.Error:
                    continue
            done.wait(0.002)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        hands.path.write_bytes(CONTENT)
        for number in range(2):
            hands.write(CONTENT * (number + 2), CONTENT * (number + 1))
            hands.read()
        with pytest.raises(FileChangedError) as changed:
            hands.write(CONTENT, None)
    finally:
        done.set()
        watching.join()
    assert any(str(hands.path) in words for words in seen)
    digests = [digest(CONTENT * number) for number in range(1, 4)]
    assert not [words for words in seen for known in (SECRET, *digests) if known in words]
    assert SECRET not in str(changed.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")
def test_owner_and_mode_stay_or_nothing_is_written(public: Path) -> None:
    hands = Hands(node(public / "server.properties"))
    as_nobody = Hands(hands.node, sudo="setpriv --reuid=65534 --regid=65534 --clear-groups")
    hands.path.write_bytes(CONTENT)
    hands.path.chmod(0o604)
    os.chown(hands.path, 4711, 4712)
    hands.write(b"new", CONTENT, f"{hands.path}.before")
    found = hands.path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (4711, 4712, 0o604)
    public.chmod(0o777)
    with pytest.raises(ExecutorError, match="cannot be kept"):
        as_nobody.write(b"newer", b"new")
    closed = public / "closed" / "deeper"
    closed.mkdir(parents=True)
    (closed / "file").write_bytes(CONTENT)
    closed.parent.chmod(0o700)
    with pytest.raises(ExecutorError, match="may not be looked into"):
        as_nobody.read(str(closed / "file"))
    public.chmod(0o755)
    assert (hands.names, hands.read()) == (["closed", "server.properties", "server.properties.before"], b"new")


@pytest.mark.parametrize("path", ["/dev/zero", "/dev"])
def test_what_is_no_file_is_not_read(tmp_path: Path, path: str) -> None:
    """A device has no end."""
    with pytest.raises(NotRegularError, match="not a regular file"):
        Hands(node(tmp_path / "server.properties")).read(path)


def test_a_local_process_stops_and_starts(tmp_path: Path) -> None:
    hands = Hands(node(tmp_path / "server 1.properties"))
    assert hands.incarnation() is None
    hands.stop()
    hands.start()
    try:
        first = hands.incarnation()
        hands.start()
        assert hands.incarnation() == first is not None, "to start what runs changes nothing"
        hands.stop()
        assert hands.incarnation() is None
        hands.start()
        assert hands.incarnation() not in (None, first)
    finally:
        hands.stop()
    assert running(SERVER, str(hands.path)) == []


def test_the_log_of_a_local_process_is_what_it_has_printed(tmp_path: Path) -> None:
    said = "import signal; print(9000 * 'x'); print('port in use', flush=True); signal.pause()"
    command = f"{shlex.join([sys.executable, '-c', said])} kafka.Kafka {{path}}"
    hands = Hands(node(tmp_path / "server.properties", command=command))
    with pytest.raises(ExecutorError, match="No such file"):
        asyncio.run(hands.executor.log_of(hands.node))
    hands.start()
    hands.stop()
    found = asyncio.run(hands.executor.log_of(hands.node))
    assert found is not None
    assert found.text.endswith("x\nport in use\n")
    assert len(found.text) == LOG_BYTES
    alone = Hands(node(tmp_path / "other.properties"), "ssh", WORDED)
    assert asyncio.run(alone.executor.log_of(alone.node)) is None


@pytest.mark.parametrize("prints", ["head -c 4000000 /dev/zero | tr '\\0' x", "printf 'a\\033[2Jb'", "printf 'a b'"])
def test_what_names_no_process_is_refused(tmp_path: Path, prints: str) -> None:
    """The journal keeps this word."""
    hands = Hands(node(tmp_path / "server.properties"), commands={"incarnation": shlex.join(["sh", "-c", prints])})
    with pytest.raises(ExecutorError, match="tells the incarnation") as raised:
        hands.incarnation()
    assert raised.value.where == "broker-1 on localhost"


def test_the_namesake_beside_it_is_another_process(tmp_path: Path) -> None:
    """Kafka's controller runs on the same directory, with a file beside ours."""
    ours, stock = (Hands(node(tmp_path / name)) for name in ("controller.properties", "controller.stock.properties"))
    stock.start()
    try:
        assert ours.incarnation() is None
        assert stock.incarnation() is not None
    finally:
        stock.stop()


def test_who_only_looks_at_the_file_is_not_the_process(tmp_path: Path) -> None:
    hands = Hands(node(tmp_path / "server.properties"))
    hands.path.touch()
    editor = psutil.Popen(["tail", "-f", str(hands.path)])
    try:
        assert hands.incarnation() is None
        hands.stop()
        assert editor.is_running()
    finally:
        editor.kill()
        editor.wait()


def test_who_brings_the_command_is_not_the_process(tmp_path: Path) -> None:
    """The command lines of sudo and ssh have the property file and the mark, too."""
    brings = PRESETS["local"].commands["start"].replace("{python}", "env -u NOTHING sh -c '\"$@\"' brings {python}")
    hands = Hands(node(tmp_path / "server.properties"), commands={"start": brings})
    hands.start()
    try:
        assert hands.incarnation() is not None
    finally:
        hands.stop()


def test_a_process_that_does_not_end_is_an_error_and_no_kill(tmp_path: Path) -> None:
    there = node(tmp_path / "server.properties", command=server(lingers=1000))
    hands = Hands(there)
    hands.start()
    try:
        patient, hands.executor = hands.executor, executor(there, "local", seconds=2.0)
        with pytest.raises(ExecutorError, match="still ran after"):
            hands.stop()
        hands.executor = patient
        assert hands.incarnation() is not None
    finally:
        end(SERVER, str(hands.path))


@pytest.mark.parametrize(
    ("command", "said"),
    [("/nonexistent/kafka {path}", "cannot be started"), ("false", "ended at once with exit code 1")],
)
def test_a_start_that_fails_says_why(tmp_path: Path, command: str, said: str) -> None:
    hands = Hands(node(tmp_path / "server.properties", command=command))
    with pytest.raises(ExecutorError, match=said):
        hands.start()


def test_a_start_that_keeps_its_output_open_does_not_hang(tmp_path: Path) -> None:
    hands = Hands(node(tmp_path / "server.properties"), commands={"start": "sh -c 'exec sleep 4713 &'"})
    hands.start()
    while not running("sleep", "4713"):
        pass
    end("sleep", "4713")


@pytest.mark.lane("test-all")
def test_a_host_that_is_not_reached_is_told_from_a_command_that_fails(sshd: LoopbackSshd, tmp_path: Path) -> None:
    there = node(tmp_path / "server.properties", "127.0.0.1")
    gone = Hands(there, "ssh", WORDED, ssh=sshd.ssh.replace(f"Port={sshd.port}", "Port=1"))
    with pytest.raises(HostUnreachableError, match="Connection refused"):
        gone.read()
    stranger = Hands(there, "ssh", WORDED, ssh=sshd.ssh.replace("/known_hosts", "/nobody"))
    with pytest.raises(HostUnreachableError, match="verification failed"):
        stranger.read()
    fails = Hands(there, "ssh", {**WORDED, "read": "{*ssh} -- {host} false"}, ssh=sshd.ssh)
    with pytest.raises(ExecutorError, match="exit code 1") as failed:
        fails.read()
    assert not isinstance(failed.value, HostUnreachableError)


@pytest.mark.lane("test-all")
def test_ssh_that_breaks_in_the_middle_is_not_reached(tmp_path: Path) -> None:
    require_sshd()
    with LoopbackSshd(tmp_path / "sshd") as own:
        hands = Hands(node(tmp_path / "server.properties", "127.0.0.1"), "ssh", WORDED, ssh=own.ssh)
        falls_over = threading.Thread(target=_break_off, args=("4714",))
        falls_over.start()
        with pytest.raises(HostUnreachableError):
            hands.run("sh", "-c", "exec sleep 4714", seconds=PATIENCE_SECONDS)
        falls_over.join()
        end("sleep", "4714")


def _break_off(mark: str) -> None:
    """The host falls over while a command runs there: every process of sshd is gone."""
    while not (found := running("sleep", mark)):
        pass
    for process in found[0].parents():
        if process.name().startswith("sshd"):
            process.kill()


@pytest.mark.parametrize(
    ("preset", "commands", "variables", "host", "said"),
    [
        ("nothing", {}, {}, "localhost", "there is no preset"),
        (
            "template",
            {"read": "cat {path}"},
            {},
            "h",
            "no command is there for write, run, incarnation, stop and start",
        ),
        ("statefulset", {}, {}, "h", "nothing is given for {pod}"),
        ("ssh-systemd", {"stop": "ssh '{host}"}, {}, "h", "cannot be taken apart"),
        ("ssh-systemd", {}, {"path": "/x"}, "h", "the rollout gives these itself"),
        ("ssh-systemd", {}, {"unit": "a\nb"}, "h", "control character"),
    ],
)
def test_an_inventory_that_cannot_work_is_refused_at_once(
    tmp_path: Path, preset: str, commands: dict[str, str], variables: dict[str, str], host: str, said: str
) -> None:
    with pytest.raises(OperatorError) as refused:
        executor(node(tmp_path / "server.properties", host), preset, commands, variables)
    assert said in str(refused.value)
    assert refused.value.where.startswith("executors.default")


@pytest.mark.parametrize("action", ["stop", "start", "restart"])
def test_what_a_worded_command_prints_is_not_shown(tmp_path: Path, action: str) -> None:
    """The output may hold a secret of the node; only the file of outputs gets it."""
    words = f"sh -c 'echo {SECRET}; echo {SECRET} >&2; exit 3'"
    commands = {"stop": words, "start": words, "restart": words}
    hands = Hands(node(tmp_path / "server.properties"), "local", commands)
    with pytest.raises(ExecutorError, match="ended with exit code 3") as failed:
        {"stop": hands.stop, "start": hands.start, "restart": hands.restart}[action]()
    assert SECRET not in str(failed.value)
    assert failed.value.output == Output(3, f"{SECRET}\n", f"{SECRET}\n")
