"""Reading again what differed, on a real ZooKeeper and a real log, that rest, or move on in the way that is tried."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from migrator.controller.quorum_target import KEY, RESOURCE
from migrator.errors import OperatorError
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.records.batch import build_batch, restamp
from migrator.records.codec import encode_all
from migrator.records.metadata import ConfigRecord, ConfigResourceType, MetadataRecord, NoOpRecord
from migrator.verify.comparison import Difference
from migrator.verify.kraft.log_tail import LogTail
from migrator.verify.recheck import Patience, Recheck, Settlement, agrees
from migrator.verify.zookeeper import side as zookeeper_side
from migrator.verify.zookeeper.side import ZooKeeperSide
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.configs import encode_config
from migrator.zookeeper.znodes.migration import decode_migration, encode_migration
from tests.conftest import ZooKeeperSpace, connect, disconnect
from tests.verify.support.stock_pair import AFTER, restore, stock_metadata, stock_property_file

TOPIC = next(path for znode in AFTER if (path := znode.path).startswith(paths.TOPIC_CONFIGS + "/")).rpartition("/")[2]
SUSPECT = Difference("config", f"topic:{TOPIC}", "retention.ms", "1", None)
SOON = Patience(total=20.0, rest=0.5)
PAUSE_SECONDS = 0.05


class Pair:
    """A restored stock migration, and what happens to it while it is read again."""

    def __init__(self, client: KazooClient, hosts: str, directory: Path) -> None:
        restore(client, AFTER)
        self.client = client
        self.hosts = hosts
        self.segment = stock_metadata(directory)
        self.config = stock_property_file(directory, hosts)
        self.log = LogTail(directory)

    def append(self, *records: MetadataRecord) -> None:
        """One batch, as a leader would."""
        end = LogTail(self.segment.parent).end_offset
        batch, _ = restamp(build_batch(encode_all(records, 20), timestamp_ms=1), end, 99)
        with self.segment.open("ab") as file:
            file.write(batch)

    def set_retention(self, text: str) -> None:
        """In ZooKeeper alone."""
        self.client.set(paths.topic_config(TOPIC), encode_config({"retention.ms": text}))

    def retention(self, text: str) -> ConfigRecord:
        return ConfigRecord(ConfigResourceType.TOPIC, TOPIC, "retention.ms", text)

    def mark(self, offset: int | None = None) -> None:
        """Let ZooKeeper say that it holds the log up to there, or to its end."""
        data, _ = self.client.get(paths.MIGRATION)
        state = decode_migration(paths.MIGRATION, data)
        assert state is not None
        end = LogTail(self.segment.parent).end_offset - 1
        self.client.set(
            paths.MIGRATION, encode_migration(replace(state, kraft_metadata_offset=end if offset is None else offset))
        )

    def settle(self, patience: Patience = SOON) -> Settlement:
        with ZooKeeperSide(None, str(self.config), b"salt") as zookeeper:
            return Recheck(zookeeper, self.log, b"salt", patience).settle([SUSPECT])


@pytest.fixture
def pair(zookeeper_client: KazooClient, zookeeper: ZooKeeperSpace, tmp_path: Path) -> Pair:
    return Pair(zookeeper_client, zookeeper.hosts, tmp_path)


@contextmanager
def again_and_again(act: Callable[[], None]) -> Iterator[None]:
    """Something that happens meanwhile, twenty times a second."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not ended.wait(PAUSE_SECONDS):
                act()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        assert not failures, failures


def test_what_differs_at_rest_differs_at_a_named_point(pair: Pair) -> None:
    pair.set_retention("77")
    found = pair.settle()
    (one,) = found.different
    assert one == replace(SUSPECT, zookeeper="77", kraft=one.kraft, zxid=one.zxid)
    assert found.at.offset == pair.log.image.provenance.offset
    assert one.zxid is not None
    assert found.at.zxid >= one.zxid >= pair.client.get(paths.topic_config(TOPIC))[1].mzxid
    assert (found.undecided, found.rounds) == ((), 1)


def test_what_agrees_now_is_no_difference(pair: Pair) -> None:
    pair.append(pair.retention("88"))
    pair.set_retention("88")
    pair.mark()
    found = pair.settle()
    assert (found.different, found.undecided, found.agreed) == ((), (), (SUSPECT.key,))


def test_a_change_that_zookeeper_gets_a_little_later_is_waited_for(pair: Pair) -> None:
    pair.append(pair.retention("88"))
    pair.append(NoOpRecord())

    def follow() -> None:
        pair.set_retention("88")
        pair.mark()

    behind = threading.Timer(1.0, follow)
    behind.start()
    found = pair.settle(Patience(total=30.0, rest=10.0))
    behind.join()
    assert (found.different, found.undecided, found.agreed) == ((), (), (SUSPECT.key,))


def test_zookeeper_that_does_not_catch_up_is_no_verdict(pair: Pair) -> None:
    """The log goes on, the mark does not: what differs may still be under way."""
    pair.append(pair.retention("88"))
    with again_and_again(lambda: pair.append(NoOpRecord())):
        found = pair.settle(Patience(total=2.0, rest=1.5))
    assert found.different == ()
    assert [left.key for left in found.undecided] == [SUSPECT.key]
    assert "ZooKeeper holds the log only up to offset" in found.why


def test_a_planted_value_is_found_although_the_mark_moves_all_the_time(pair: Pair) -> None:
    pair.set_retention("77")

    def beat() -> None:
        pair.append(NoOpRecord())
        pair.mark()

    with again_and_again(beat):
        found = pair.settle(Patience(total=30.0, rest=20.0))
    assert [different.zookeeper for different in found.different] == ["77"]


@pytest.mark.parametrize("kind", [RESOURCE.resource_type, 32])
def test_configurations_that_zookeeper_has_no_place_for_are_passed_over(pair: Pair, kind: int) -> None:
    """The target of the voters, and the types of later releases."""
    pair.set_retention("77")

    def beat() -> None:
        pair.append(ConfigRecord(kind, RESOURCE.name, KEY, str(time.monotonic_ns())))
        pair.mark()

    with again_and_again(beat):
        found = pair.settle(Patience(total=30.0, rest=20.0))
    assert [different.zookeeper for different in found.different] == ["77"]


def test_what_keeps_changing_in_the_log_is_not_called_different(pair: Pair) -> None:
    """Its value in ZooKeeper is none that it ever had in the log; but ZooKeeper is always some changes behind."""
    pair.set_retention("77")
    values = iter(range(1_000, 100_000))

    pair.append(*(pair.retention(str(next(values))) for _ in range(5)))

    def beat() -> None:
        pair.append(pair.retention(str(next(values))))
        pair.mark(LogTail(pair.segment.parent).end_offset - 5)

    with again_and_again(beat):
        found = pair.settle(Patience(total=2.0, rest=1.5))
    assert found.different == ()
    assert [left.key for left in found.undecided] == [SUSPECT.key]


def test_a_value_that_it_has_now_and_then_is_agreement(pair: Pair) -> None:
    """ZooKeeper lags behind a value that changes to and fro: each reading is one that the log had."""
    values = iter(["88", "99"] * 10_000)
    pair.append(pair.retention("99"))

    def beat() -> None:
        text = next(values)
        pair.append(pair.retention(text))
        pair.set_retention(text)
        pair.mark()

    with again_and_again(beat):
        found = pair.settle(Patience(total=30.0, rest=20.0))
    assert (found.different, found.undecided) == ((), ())


def test_a_log_that_ends_before_what_zookeeper_holds_is_no_verdict(pair: Pair) -> None:
    """A copy of a directory, or a follower's that is cut off."""
    pair.set_retention("77")
    pair.mark(pair.log.end_offset + 1000)
    found = pair.settle()
    assert found.different == ()
    assert len(found.undecided) == 1
    assert "which ZooKeeper already holds" in found.why


def test_a_zookeeper_that_dies_is_an_error(
    own_zookeeper: EmbeddedZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_side, "READ_RETRY_SECONDS", 1.0)
    client = connect(own_zookeeper.hosts)
    try:
        pair = Pair(client, own_zookeeper.hosts, tmp_path)
        with ZooKeeperSide(None, str(pair.config), b"salt") as zookeeper:
            assert zookeeper.mark().copied
            own_zookeeper.kill()
            with pytest.raises(OperatorError, match="ZooKeeper could not be read"):
                Recheck(zookeeper, pair.log, b"salt", SOON).settle([SUSPECT])
    finally:
        disconnect(client)


def test_the_rules_hold_here_as_in_spark() -> None:
    assert agrees(("partition", "t-0", "epoch"), "9", "7")
    assert not agrees(("partition", "t-0", "epoch"), "7", "9")
    assert agrees(("producer ids", "", "next"), "1000|2000", "2000")
    assert not agrees(("producer ids", "", "next"), None, "2000")
    assert agrees(("topic", "t", "id"), None, None)


@pytest.mark.lane("test-all")
def test_znodes_that_come_and_go_while_they_are_read_are_no_error(pair: Pair) -> None:
    """A topic is deleted and made again all the time: each reading has all of a znode, or none of it."""
    topic = next(znode for znode in AFTER if znode.path == paths.topic("plain"))
    inner = sorted(znode.path for znode in AFTER if znode.path.startswith(topic.path + "/"))
    states = {znode.path: znode.data for znode in AFTER if znode.path.endswith("/state")}

    def delete_and_create() -> None:
        pair.client.delete(topic.path, recursive=True)
        pair.client.create(topic.path, topic.data)
        for path in inner:
            pair.client.create(path, states.get(path) or b"")

    keys = [
        ("topic", "plain", "id"),
        ("partition", "plain-0", "leader"),
        ("config", "topic:plain", "max.message.bytes"),
    ]
    seen: set[int] = set()
    roots = (paths.TOPICS, paths.TOPIC_CONFIGS)
    with ZooKeeperSide(None, str(pair.config), b"salt") as zookeeper, again_and_again(delete_and_create):
        deadline = time.monotonic() + 60
        while len(seen) < 2:
            assert time.monotonic() < deadline, "nothing changed while it was read"
            found = zookeeper.rows(keys)
            assert set(found.values()) <= {"7fddhjCIRDmmtUOWJ0STkw", "1", "2097152"}, found
            seen.add(len(found))
            assert paths.topic("configured") in zookeeper.stats(roots)
