"""ZooKeeper's files against what the server that wrote them says: every kind of transaction, snapshots, damage."""

from __future__ import annotations

import gzip
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.security import READ_ACL_UNSAFE

from migrator.drill.workload.fill import FillOptions, fill
from migrator.errors import OperatorError
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions
from migrator.verify.zookeeper.files import (
    FilesReading,
    data_files,
    read_tree,
)
from migrator.verify.zookeeper.parts import divided, part_rows
from migrator.verify.zookeeper.reading import other_families, topic_names, topics
from migrator.verify.zookeeper.transactions import DataSet, read_transactions
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from tests.conftest import connect, disconnect

CHROOT = "/deep/kafka"
SECRET = "encoder"
ENCODER = PasswordEncoder(SECRET, lambda size: b"0" * size)
SALT = b"salt"
SNAPSHOT_EVERY = 40


def walk(client: KazooClient, path: str = "/") -> Iterator[tuple[str, bytes, int, int]]:
    """Path, data, version and mzxid of every znode that outlives its session."""
    data, stat = client.get(path)
    if path != "/" and not stat.ephemeralOwner:
        yield path, data or b"", stat.version, stat.mzxid
    for name in client.get_children(path):
        child = f"{path.rstrip('/')}/{name}"
        if not child.startswith("/zookeeper"):
            yield from walk(client, child)


def everything(reading: FilesReading) -> set[tuple[str, bytes, int, int]]:
    found = {path: znode for path, znode in reading.tree.items() if not path.startswith("/zookeeper")}
    lasting = {path: znode for path, znode in found.items() if path != "/" and not znode.stat.ephemeral_owner}
    return {(path, one.data or b"", one.stat.version, one.stat.mzxid) for path, one in lasting.items()}


def churn(client: KazooClient, other: KazooClient, random: Random, rounds: int) -> None:
    """Requests of every kind, also such as fail."""
    client.ensure_path("/churn")
    for number in range(rounds):
        path = f"/churn/{random.randrange(20)}"
        kind = random.randrange(9)
        try:
            if kind < 2:
                client.create(path, random.randbytes(5))
            elif kind < 4:
                client.set(path, random.randbytes(random.randrange(30)))
            elif kind == 4:
                client.delete(path, recursive=True)
            elif kind == 5:
                client.set_acls("/churn", READ_ACL_UNSAFE if number < 0 else client.get_acls("/churn")[0])
                other.create(f"{path}-ephemeral", b"e", ephemeral=True)
            elif kind == 6:
                client.create(f"{path}/seq-", b"s", sequence=True)
            else:
                transaction = client.transaction()
                transaction.create(f"{path}-multi", b"m")
                transaction.set_data("/churn", random.randbytes(3))
                transaction.check("/churn", 0 if kind == 7 else -1)
                transaction.delete(f"{path}-multi")
                transaction.commit()
        except (NodeExistsError, NoNodeError):
            pass


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[tuple[str, bytes, int, int]]]:
    """A server's directory after it was killed, and what it said before: several logs and fuzzy snapshots."""
    options = ZooKeeperOptions(
        system_properties={
            "zookeeper.snapCount": str(SNAPSHOT_EVERY),
            "zookeeper.extendedTypesEnabled": "true",
            "znode.container.checkIntervalMs": "1000000",
        }
    )
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("files"), options=options) as server:
        client, other = connect(server.hosts), connect(server.hosts)
        client.ensure_path(CHROOT)
        kafka = connect(server.hosts + CHROOT)
        fill(kafka, FillOptions("x" * 22, (1, 2, 3), 300, 1, SECRET))
        churn(client, other, Random(5), 400)
        disconnect(other)  # its ephemeral znodes go
        churn(client, kafka, Random(6), 200)
        kafka.create(paths.broker(1), b"{}", ephemeral=True)
        before = set(walk(client))
        server.kill()
        disconnect_dead(client, kafka)
    return server.version_directory, before


def disconnect_dead(*clients: KazooClient) -> None:
    for client in clients:
        client.stop()
        client.close()


@pytest.fixture
def files(written: tuple[Path, set[tuple[str, bytes, int, int]]], tmp_path: Path) -> Path:
    """A copy of the server's files to do harm to."""
    return Path(shutil.copytree(written[0], tmp_path / "version-2"))


def read_all(directory: Path) -> FilesReading:
    return read_tree(data_files([directory]), lambda _: True)


def logs(directory: Path) -> list[Path]:
    return [path for _, path in data_files([directory]).logs]


def snapshots(directory: Path) -> list[Path]:
    return [path for _, path in data_files([directory]).snapshots]


def test_files_say_what_the_server_said(written: tuple[Path, set[tuple[str, bytes, int, int]]]) -> None:
    directory, before = written
    assert len(snapshots(directory)) > 3, "the server was to write snapshots while it worked"
    assert len(logs(directory)) > 3
    assert everything(read_all(directory.parent)) == before


def test_an_older_snapshot_and_the_logs_behind_it_say_the_same(
    files: Path, written: tuple[Path, set[tuple[str, bytes, int, int]]]
) -> None:
    for number, newest in enumerate(snapshots(files)[:-1]):
        newest.unlink()
        if number % 3 == 0:
            assert everything(read_all(files)) == written[1]


def test_a_log_directory_of_its_own_and_a_compressed_snapshot_are_read(
    files: Path, tmp_path: Path, written: tuple[Path, set[tuple[str, bytes, int, int]]]
) -> None:
    apart = tmp_path / "logs"
    apart.mkdir()
    for path in logs(files):
        path.rename(apart / path.name)
    newest = snapshots(files)[0]
    newest.with_name(newest.name + ".gz").write_bytes(gzip.compress(newest.read_bytes()))
    newest.unlink()
    assert everything(read_tree(data_files([files, apart]), lambda _: True)) == written[1]


def test_parts_together_hold_all_rows_that_a_live_server_gives(files: Path, tmp_path: Path) -> None:
    """A server is started on the same files; its chroot comes off the paths."""
    every = data_files([files])
    parts = divided(every, 3, CHROOT).parts
    rows = [row for part in parts for row in part_rows(every, part, CHROOT, ENCODER, SALT)]
    live = tmp_path / "server"
    shutil.copytree(files, live / "data" / "version-2")
    with EmbeddedZooKeeper(live) as server, ZooKeeperSession(SessionOptions(server.hosts + CHROOT)) as session:
        reader = BulkReader(session)
        expected = [
            *topics(reader, topic_names(reader), ENCODER, SALT),
            *other_families(reader, ENCODER, SALT),
        ]
    assert len(parts) > 3
    assert len(rows) > 1_500
    assert sorted(rows) == sorted(expected)


def test_the_state_at_any_zxid_is_that_of_all_transactions_until_then(files: Path) -> None:
    """The oldest snapshot is that of a server without data, so no fuzzy one has a part in what is expected."""
    every = data_files([files])
    zxids = [one.zxid for path in logs(files)[:-1] for one in read_transactions(path)]
    ends = [zxid for zxid in zxids if zxid >= every.snapshots[-2][0]]
    for zxid in (every.snapshots[0][0], *ends[:: len(ends) // 3]):
        found = read_tree(every.as_of(zxid), lambda _: True)
        assert found.zxid == zxid
        oldest = replace(every, snapshots=every.snapshots[-1:], until=zxid)
        assert everything(found) == everything(read_tree(oldest, lambda _: True))
    newest = snapshots(files)[0]
    (files / f"{newest.name}.gz").write_bytes(gzip.compress(newest.read_bytes()))
    twice = data_files([files, files]).as_of(every.snapshots[0][0])
    assert newest not in {path for _, path in twice.snapshots}, "a copy is no later snapshot"
    with pytest.raises(OperatorError, match="the logs end with 0x"):
        read_tree(every.as_of(1 << 40), lambda _: True)
    with pytest.raises(OperatorError, match="no snapshot here is surely older than zxid 0x0"):
        every.as_of(0)


def test_a_transaction_tells_who_wrote_what_and_when(files: Path) -> None:
    found = [transaction for path in logs(files)[:-1] for transaction in read_transactions(path)]
    sets = [change for one in found for change in one.changes if isinstance(change, DataSet)]
    assert sets
    assert all(one.session and one.time_ms > 1_600_000_000_000 for one in found)
    assert [one.zxid for one in found] == list(range(found[0].zxid, found[0].zxid + len(found)))


def end_of(log: Path) -> int:
    """The size without what was allocated ahead."""
    return len(log.read_bytes().rstrip(b"\0"))


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def cut_last_log(files: Path) -> Path:
    path = logs(files)[-1]
    path.write_bytes(path.read_bytes()[: end_of(path) - 3])
    return path


def zero_the_end(files: Path) -> Path:
    path = logs(files)[-1]
    content = path.read_bytes()
    path.write_bytes(content[: end_of(path) - 3].ljust(len(content), b"\0"))
    return path


def flip_in_log(files: Path) -> Path:
    path = logs(files)[-1]
    flip(path, end_of(path) - 20)
    return path


def wrong_kind(files: Path) -> Path:
    path = logs(files)[-1]
    path.write_bytes(b"PK\x03\x04" + path.read_bytes()[4:])
    return path


def lose_a_log(files: Path) -> Path:
    for path in snapshots(files)[:-1]:
        path.unlink()
    lost, following = logs(files)[2:4]
    lost.unlink()
    return following


def damage_every_snapshot(files: Path) -> Path:
    for path in snapshots(files):
        flip(path, path.stat().st_size // 2)
    return snapshots(files)[0]


def cut_every_snapshot(files: Path) -> Path:
    for path in snapshots(files):
        path.write_bytes(path.read_bytes()[:-30])
    return snapshots(files)[0]


def snappy(files: Path) -> Path:
    path = snapshots(files)[0]
    return path.rename(path.with_name(path.name + ".snappy"))


def another_release(files: Path) -> Path:
    """Every snapshot has a layout that no release has yet."""
    for path in snapshots(files):
        flip(path, 7)
    return snapshots(files)[0]


def unknown_type(files: Path) -> Path:
    """A transaction of a kind that no release has yet, in order otherwise."""
    path = logs(files)[-1]
    last = list(read_transactions(path))[-1]
    body = b"".join(
        (
            last.session.to_bytes(8, "big"),
            bytes(4),
            (last.zxid + 1).to_bytes(8, "big"),
            bytes(8),
            (99).to_bytes(4, "big"),
        )
    )
    entry = zlib.adler32(body).to_bytes(8, "big") + len(body).to_bytes(4, "big") + body + b"B"
    path.write_bytes(path.read_bytes()[: end_of(path)] + entry)
    return path


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_last_log, r"a transaction is cut: .* \(at byte \d+\)"),
        (zero_the_end, r"a transaction is half written \(at byte \d+\)"),
        (flip_in_log, r"a transaction does not fit its checksum \(at byte \d+\)"),
        (wrong_kind, r"begins with b'PK"),
        (lose_a_log, "transactions are missing between zxid 0x"),
        (damage_every_snapshot, "snapshot"),
        (cut_every_snapshot, "snapshot"),
        (another_release, r"begins with b'ZKSN' 3 instead of b'ZKSN' 2 \(at byte 0\)"),
        (snappy, "cannot read a snapshot that is compressed with snappy.*compression.method=gz"),
        (unknown_type, r"transaction 0x[0-9a-f]+ does not decode: its type 99 is unknown \(at byte \d+\)"),
    ],
)
def test_damage_is_named_with_its_place(files: Path, damage: Callable[[Path], Path], message: str) -> None:
    where = damage(files)
    with pytest.raises(OperatorError, match=message) as raised:
        read_all(files)
    assert raised.value.where == str(where)


def test_a_snapshot_that_is_being_written_does_not_count(
    files: Path, written: tuple[Path, set[tuple[str, bytes, int, int]]]
) -> None:
    newest = snapshots(files)[0]
    newest.write_bytes(newest.read_bytes()[:-30])
    assert everything(read_all(files)) == written[1]


def test_a_directory_without_a_snapshot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="no snapshot of ZooKeeper"):
        data_files([tmp_path])
    with pytest.raises(OperatorError, match="cannot read"):
        data_files([tmp_path / "absent"])
