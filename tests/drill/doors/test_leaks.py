"""The drill finds its secrets wherever they must not be, and does not take what belongs there for a leak."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from migrator.controller.token_index import token_hmac
from migrator.drill.cluster import ENCODER_SECRET, TOKEN_SECRET
from migrator.drill.doors.leaks import SecretKind, given_away, open_to_others, secrets_of
from migrator.drill.security.open_ports import ProcessWatch
from migrator.drill.security.protection import BROKER, METRICS_READER, SCRAM_512, WRITER, Secured
from migrator.drill.workload.fill import VAULT_PASSWORD, token_ids


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    found = Secured(tmp_path / "security")
    found.of_controller(3001)
    found.store(BROKER)
    return found


def planted(secured: Secured, directory: Path) -> dict[str, tuple[SecretKind, str]]:
    """By what it is: its kind, and how it would look in a text."""
    stored = secured.users[WRITER][SCRAM_512].split("stored_key=")[1].split(",")[0]
    pem = secured.store(BROKER).read_text().splitlines()
    own = token_hmac(TOKEN_SECRET.encode(), token_ids()[0])
    assert secured.store(BROKER).is_relative_to(directory)
    return {
        "a password": (SecretKind.PASSWORD, secured.passwords[WRITER]),
        "the password for metrics": (SecretKind.PASSWORD, secured.passwords[METRICS_READER]),
        "the encoder's secret": (SecretKind.PASSWORD, ENCODER_SECRET),
        "a password that ZooKeeper has encrypted": (SecretKind.CONFIG, VAULT_PASSWORD),
        "a stored key": (SecretKind.SCRAM, stored),
        "the same in hexadecimal digits": (SecretKind.SCRAM, base64.b64decode(stored).hex()),
        "a private key": (SecretKind.KEY, "\n".join(pem[1:3])),
        "a token": (SecretKind.TOKEN, base64.b64encode(own).decode()),
    }


def test_nothing_is_given_away_at_first(secured: Secured, tmp_path: Path) -> None:
    (tmp_path / "controller.properties").write_text(str(secured.of_broker.__doc__))
    count, found = given_away(tmp_path, secrets_of(secured, tmp_path))
    assert count > 5
    assert found == []


def test_every_kind_is_found_in_a_log(secured: Secured, tmp_path: Path) -> None:
    secrets, log = secrets_of(secured, tmp_path), tmp_path / "broker-1" / "node.log"
    log.parent.mkdir()
    for what, (kind, text) in planted(secured, tmp_path).items():
        log.write_text(f"[2026-01-01] INFO something = {text} (kafka.server)\n")
        assert given_away(tmp_path, secrets)[1] == [f"broker-1/node.log: {kind.value}"], what


@pytest.mark.parametrize(
    ("place", "kinds"),
    [
        ("broker-1/node.properties", {SecretKind.PASSWORD}),
        ("grpc-tls/key.pem", {SecretKind.KEY}),
        ("broker-1/data/__cluster_metadata-0/00000000000000000000.log", {SecretKind.SCRAM, SecretKind.CONFIG}),
        ("zookeeper/data/version-2/log.1", {SecretKind.SCRAM}),
        ("broker-1/node.properties.before-kraft.1a2b3c4d", {SecretKind.PASSWORD}),
        ("rollout/inventory.rollout/archive-1a2b3c4d/zookeeper.jsonl", {SecretKind.SCRAM, SecretKind.CONFIG}),
        ("rollout/inventory.rollout/verdicts/verify.json", set()),
    ],
)
def test_each_may_be_in_its_place_and_nothing_else_may(
    secured: Secured, tmp_path: Path, place: str, kinds: set[SecretKind]
) -> None:
    secrets, path = secrets_of(secured, tmp_path), tmp_path / place
    path.parent.mkdir(parents=True)
    for what, (found, text) in planted(secured, tmp_path).items():
        path.write_text(text)
        assert bool(given_away(tmp_path, secrets)[1]) is (found not in kinds), what


def test_files_that_others_may_read_are_named(tmp_path: Path) -> None:
    for name, mode in (("mine", 0o600), ("ours", 0o640), ("everybodys", 0o604)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    assert open_to_others(tmp_path) == ["everybodys", "ours"]


@pytest.mark.parametrize("where", ["argument", "environment"])
def test_what_a_process_shows_is_seen(secured: Secured, tmp_path: Path, where: str) -> None:
    secret = secured.passwords[WRITER]
    command = [psutil.Process().exe(), "-c", "print(flush=True); input()"]
    command += [f"--password={secret}"] if where == "argument" else []
    environment = os.environ | ({"PASSWORD": secret} if where == "environment" else {})
    watch, pipe = ProcessWatch(enabled=True), subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as child:
        assert child.stdout is not None
        child.stdout.readline()
        watch.look(child.pid)
        child.communicate(b"\n")
    shown = "\n".join(watch.shown).encode()
    assert secrets_of(secured, tmp_path).find(shown) == {SecretKind.PASSWORD}


def test_a_port_that_the_network_reaches_is_no_port_on_loopback() -> None:
    watch = ProcessWatch(enabled=True)
    watch.ports = {("127.0.0.1", 1): "a", ("::ffff:127.0.0.1", 2): "b", ("::1", 3): "c", ("::", 4): "d"}
    assert watch.reachable == [":::4 of d"]


def test_a_command_that_has_ended_is_no_error() -> None:
    watch = ProcessWatch(enabled=True)
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    watch.look(child.pid)
    assert watch.shown == set()
