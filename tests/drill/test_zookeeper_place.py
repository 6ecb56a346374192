"""A drill in somebody else's ZooKeeper: which place it takes, and that it leaves the place as it was."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient

from migrator.cli.drill import command
from migrator.drill.cluster import MIGRATOR
from migrator.drill.zookeeper_place import ClaimedPlace, OutsideZooKeeper, parse_place
from migrator.errors import OperatorError
from migrator.parts.processes import ChildProcess
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.zookeeper.znodes import paths
from tests.conftest import ZooKeeperSpace, connect, disconnect
from tests.patience import PATIENCE_SECONDS


@pytest.fixture(scope="module")
def somebodys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """``host:port`` of a server without a chroot; each test with a `client` finds it empty."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server.hosts


@pytest.fixture
def client(somebodys: str) -> Iterator[KazooClient]:
    """A place of another drill, in the same server."""
    found = connect(somebodys)
    yield found
    for path in reversed(everything(found)):
        found.delete(path)
    disconnect(found)


@pytest.mark.parametrize(
    ("text", "server", "chroot"),
    [
        ("127.0.0.1:2181", "127.0.0.1:2181", ""),
        ("zookeeper:2181/", "zookeeper:2181", ""),
        ("zookeeper:2181/drill", "zookeeper:2181", "/drill"),
        ("[::1]:2181/a/b-c/", "[::1]:2181", "/a/b-c"),
    ],
)
def test_a_place_is_a_server_and_a_chroot(text: str, server: str, chroot: str) -> None:
    assert parse_place(text) == OutsideZooKeeper(server, chroot)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not host:port"),
        ("/drill", "not host:port"),
        ("zookeeper", "not host:port"),
        ("zookeeper:0", "not HOST:PORT"),
        ("zookeeper:99999", "not host:port"),
        (":2181", "not HOST:PORT"),
        ("user@host:2181", "not HOST:PORT"),
        ("a:2181,b:2181/drill", "several servers"),
        ("zookeeper://a:2181", "address of the web"),
        ("a:2181/../b", "no chroot"),
        ("a:2181//b", "no chroot"),
        ("a:2181/b c", "no chroot"),
        ("a:2181/b\x00", "no chroot"),
        ("a:2181/zookeeper", "belongs to the ZooKeeper server"),
        ("a:2181/zookeeper/quota", "belongs to the ZooKeeper server"),
    ],
)
def test_anything_else_is_refused(text: str, told: str) -> None:
    run = CliRunner().invoke(command, ["--kafka", "none", "--zookeeper", text])
    assert run.exit_code == 2
    assert told in " ".join(run.output.replace("│", " ").split())


@pytest.mark.parametrize(
    "options", [("--kill-leader-at", "MigrateZkData"), ("--rollback-at", "MigrateZkData"), ("--secure",)]
)
def test_what_needs_a_server_of_the_drills_own_is_refused(options: tuple[str, ...]) -> None:
    run = CliRunner().invoke(command, ["--kafka", "none", "--zookeeper", "127.0.0.1:1/drill", *options])
    assert run.exit_code == 2
    said = " ".join(run.output.replace("│", " ").split())
    assert options[0] in said
    assert "Run that drill without --zookeeper" in said


@pytest.mark.lane("test-all")  # waits in vain for a server
def test_a_server_that_nobody_reaches_is_named(tmp_path: Path, free_port: int) -> None:
    where = f"127.0.0.1:{free_port}"
    said = refusal(tmp_path, f"{where}/drill")
    assert f"{where}: no ZooKeeper server answered" in said
    assert "Check the address" in said
    assert not (tmp_path / "drill" / "cluster").exists()


@pytest.mark.parametrize("chroot", ["", "/a", "/a/b"])
def test_a_used_place_is_refused_and_stays_as_it_is(
    somebodys: str, client: KazooClient, tmp_path: Path, chroot: str
) -> None:
    client.create(f"{chroot}/brokers/ids", b"somebody's", makepath=True)
    before = everything(client)
    said = refusal(tmp_path, somebodys + chroot)
    assert "needs an empty place, and found /brokers" in said
    assert everything(client) == before


def test_the_holder_of_a_place_is_named_and_nobody_is_told_to_delete_a_cluster(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient
) -> None:
    place = OutsideZooKeeper(zookeeper.server, f"{zookeeper.chroot}/dr")
    claimed = ClaimedPlace(place)
    for number in range(30):
        zookeeper_client.create(f"/dr/a-{number:02}")
    host = re.escape(socket.gethostname())
    holder = rf"a drill on {host}, since \d{{4}}-.* UTC, has this place, says .*/migrator_drill"
    for chroot in (place.chroot, f"{place.chroot}/sub"):
        with pytest.raises(OperatorError, match=holder) as caught:
            ClaimedPlace(OutsideZooKeeper(zookeeper.server, chroot))
        assert f"deleteall {place.chroot})" in caught.value.remedy
    zookeeper_client.create("/dr/brokers/ids/1", makepath=True)
    for chroot in (place.chroot, f"{place.chroot}/sub/deep"):
        with pytest.raises(OperatorError, match=f"{holder}; 1 brokers are registered there") as caught:
            ClaimedPlace(OutsideZooKeeper(zookeeper.server, chroot))
        assert "delete" not in caught.value.remedy
    assert zookeeper_client.exists("/dr/sub") is None
    zookeeper_client.create("/kafka/brokers/ids/1", makepath=True)
    with pytest.raises(OperatorError, match="found /brokers, with 1 registered brokers") as caught:
        ClaimedPlace(OutsideZooKeeper(zookeeper.server, f"{zookeeper.chroot}/kafka"))
    assert "delete" not in caught.value.remedy
    zookeeper_client.set("/dr/migrator_drill", b"\x1b[2J\xff")
    with pytest.raises(OperatorError, match="does not say where it runs"):
        ClaimedPlace(place)
    zookeeper_client.delete("/dr", recursive=True)
    with pytest.raises(OperatorError, match="nothing is removed"):
        claimed.give_back()


def test_many_znodes_in_the_way_are_counted(zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient) -> None:
    for number in range(30):
        zookeeper_client.create(f"/other-{number:02}")
    with pytest.raises(OperatorError, match=r"/other-00, .*/other-09 and 20 more"):
        ClaimedPlace(OutsideZooKeeper(zookeeper.server, zookeeper.chroot))


@pytest.mark.parametrize("chroot", ["", "/there", "/there/not", "/not/there"])
def test_a_place_is_as_before_when_it_is_given_back(somebodys: str, client: KazooClient, chroot: str) -> None:
    if chroot:
        client.create("/there", b"somebody's")
    before = everything(client)
    claimed = ClaimedPlace(OutsideZooKeeper(somebodys, chroot))
    client.create(f"{chroot}/brokers/topics/orders/partitions/0/state", makepath=True)
    client.create(f"{chroot}{paths.CONTROLLER}", ephemeral=True)
    claimed.give_back()
    assert everything(client) == before


@pytest.mark.parametrize("chroot", ["", "/drill"])
def test_what_others_put_there_meanwhile_stays_and_is_named(somebodys: str, client: KazooClient, chroot: str) -> None:
    claimed = ClaimedPlace(OutsideZooKeeper(somebodys, chroot))
    client.create(f"{chroot}/brokers/ids", makepath=True)
    client.create(f"{chroot}/others/work", b"for years", makepath=True)
    with pytest.raises(OperatorError, match="stay there: /others"):
        claimed.give_back()
    assert everything(client, chroot) == [f"{chroot}/others", f"{chroot}/others/work"]


@pytest.mark.parametrize("chroot", ["", "/drill"])
def test_a_cluster_that_somebody_began_there_stays_whole(somebodys: str, client: KazooClient, chroot: str) -> None:
    claimed = ClaimedPlace(OutsideZooKeeper(somebodys, chroot))
    client.delete(f"{chroot}{paths.DRILL}")
    client.create(f"{chroot}/brokers/topics/orders", makepath=True)
    before = everything(client, chroot)
    for mark in (None, b"migrator drill on another host"):
        if mark is not None:
            client.create(f"{chroot}{paths.DRILL}", mark)
            before = everything(client, chroot)
        with pytest.raises(OperatorError, match="nothing is removed"):
            claimed.give_back()
        assert everything(client, chroot) == before


def test_of_two_drills_at_once_one_gets_the_place(zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient) -> None:
    place = OutsideZooKeeper(zookeeper.server, f"{zookeeper.chroot}/drill")
    outcomes: list[ClaimedPlace | OperatorError] = []

    def claim() -> None:
        try:
            outcomes.append(ClaimedPlace(place))
        except OperatorError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = (each for each in outcomes if isinstance(each, ClaimedPlace))
    losers = [str(each) for each in outcomes if isinstance(each, OperatorError)]
    assert len(losers) == 3
    assert all("/migrator_drill" in loser for loser in losers)
    assert zookeeper_client.get_children("/drill") == ["migrator_drill"]
    assert b"migrator drill on" in zookeeper_client.get("/drill/migrator_drill")[0]
    winner.give_back()
    assert zookeeper_client.get_children("/") == []


@pytest.mark.lane("test-all")  # waits in vain for a server
def test_a_server_that_is_gone_in_the_end_is_told(own_zookeeper: EmbeddedZooKeeper) -> None:
    claimed = ClaimedPlace(OutsideZooKeeper(own_zookeeper.hosts, "/drill"))
    own_zookeeper.stop()
    with pytest.raises(OperatorError, match="no ZooKeeper server answered"):
        claimed.give_back()


@pytest.mark.lane("test-all")
def test_an_interrupted_drill_leaves_the_place_as_it_was(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    directory = tmp_path / "drill"
    line = [MIGRATOR, "drill", "--kafka", "none", "--partitions", "50", "--dir", str(directory)]
    line += ["--zookeeper", f"{zookeeper.hosts}/drill"]
    with ChildProcess("drill", line, output=tmp_path / "output") as running:
        controller = directory / "cluster" / "controller-3001" / "controller.log"
        running.wait_until(controller.exists, "a controller process", timeout_seconds=PATIENCE_SECONDS)
        assert "brokers" in zookeeper_client.get_children("/drill")
        running.send(signal.SIGINT)
        assert running.wait(timeout_seconds=PATIENCE_SECONDS) == 130
    assert zookeeper_client.get_children("/") == []
    report: dict[str, Any] = json.loads((directory / "report.json").read_text())
    assert report["outcome"] == "interrupted"
    assert report["failure"] == ""
    assert report["options"]["cluster"]["outside"] == {
        "server": zookeeper.server, "chroot": f"{zookeeper.chroot}/drill"
    }  # fmt: skip
    assert not (directory / "cluster" / "zookeeper").exists()


def refusal(tmp_path: Path, place: str) -> str:
    """What is said by a drill that does not begin."""
    line = ["--kafka", "none", "--zookeeper", place, "--dir", str(tmp_path / "drill")]
    error = CliRunner().invoke(command, line).exception
    assert isinstance(error, OperatorError)
    return f"{error} {error.remedy}"


def everything(client: KazooClient, below: str = "") -> list[str]:
    """Every path, without the server's own."""
    found = []
    for name in sorted(client.get_children(below or "/")):
        path = f"{below}/{name}"
        if path != "/zookeeper":
            found += [path, *everything(client, path)]
    return found
