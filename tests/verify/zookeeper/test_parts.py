"""A server's files in parts: all parts together give the rows of one process, which reads the whole files."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.errors import OperatorError
from migrator.verify.canonical import Row
from migrator.verify.zookeeper.files import DataFiles, data_files, read_tree
from migrator.verify.zookeeper.parts import Division, divided, part_rows
from migrator.verify.zookeeper.reading import other_families, topic_names, topics
from migrator.verify.zookeeper.transactions import Change, Created, DataSet, Deleted, SessionClosed
from migrator.zookeeper.ops import ZkSource
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from tests.lanes import examples
from tests.verify.zookeeper.support.writer import SnapshotFile, write_log, write_nodes

ENCODER = PasswordEncoder(None, lambda size: b"0" * size)
SALT = b"salt"
NAMES = ("a", "a-b", "a.b", "b", "state")
CONFIG = b'{"version":1,"config":{"retention.ms":"%d"}}'
TOPIC = b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAA%02dg","partitions":{"0":[1,2],"1":[2,1]}}'
STATE = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":%d,"isr":[1,2]}'
ZXID = 0x100000005
SESSION = 7


def universe() -> Iterator[tuple[str, bytes]]:
    """Every path that may exist below the chroot, with its data, where %d may stand for any number."""
    for root in (paths.TOPICS, paths.TOPIC_CONFIGS, paths.DELETE_TOPICS, paths.BROKER_CONFIGS, paths.USER_CONFIGS):
        yield from ((path, b"") for path in (*paths.ancestors(root), root))
    for name in NAMES:
        yield paths.topic(name), TOPIC
        yield f"{paths.topic(name)}/partitions", b""
        for partition in range(3):
            yield paths.parent_of(paths.partition_state(name, partition)), b""
            yield paths.partition_state(name, partition), STATE
        yield paths.topic_config(name), CONFIG
        yield f"{paths.DELETE_TOPICS}/{name}", b""
    yield f"{paths.BROKER_CONFIGS}/1", CONFIG
    yield "/foreign", b""
    yield f"/foreign{paths.TOPICS}", b"/"


class Server:
    """Znodes that change at random, and the transactions that changed them."""

    def __init__(self, chroot: str, random: Random) -> None:
        self.random = random
        self.nodes: dict[str, tuple[bytes, int, int]] = {"": (b"", 0, 0)}
        self.log: list[list[Change]] = []
        self._data = dict.fromkeys(paths.ancestors(f"{chroot}/x"), b"") | {
            chroot + path: data for path, data in universe()
        }
        for path in self._data:
            if random.random() < 0.9:
                self.create(path, 0)

    def data(self, path: str) -> bytes:
        template = self._data[path]
        return template % self.random.randrange(10, 99) if b"%" in template else template

    def create(self, path: str, owner: int) -> list[Change]:
        if path.rpartition("/")[0] not in self.nodes or path in self.nodes:
            return []
        self.nodes[path] = self.data(path), 0, owner
        return [Created(path.encode(), self.nodes[path][0], owner)]

    def change(self, path: str) -> list[Change]:
        _, version, owner = self.nodes[path]
        if self.random.random() < 0.5 and self.children(path) == []:
            del self.nodes[path]
            return [Deleted(path.encode())]
        self.nodes[path] = self.data(path), version + 1, owner
        return [DataSet(path.encode(), self.nodes[path][0], version + 1)]

    def children(self, path: str) -> list[str]:
        return [other for other in self.nodes if other and other.rpartition("/")[0] == path]

    def transact(self) -> None:
        if self.random.random() < 0.05:
            self.nodes = {path: node for path, node in self.nodes.items() if node[2] != SESSION}
            self.log.append([SessionClosed(SESSION)])
            return
        changes: list[Change] = []
        for path in self.random.choices(list(self._data), k=self.random.choice((1, 1, 3))):
            is_leaf = path.endswith("/state") or path.startswith(paths.TOPIC_CONFIGS)
            owner = SESSION if is_leaf and self.random.random() < 0.1 else 0
            changes += self.change(path) if path in self.nodes else self.create(path, owner)
        if changes:
            self.log.append(changes)

    def save(self, snapshot: SnapshotFile, path: str = "") -> None:
        """Write the tree as a server does (``DataTree.serializeNode``), while transactions go on."""
        for _ in range(self.random.choice((0, 0, 0, 1, 4))):
            self.transact()
        if path in self.nodes:
            data, version, owner = self.nodes[path]
            children = self.children(path)
            self.random.shuffle(children)
            if path:  # the file begins with the root
                snapshot.add((path, data, version), owner)
            for child in children:
                self.save(snapshot, child)


def write_files(directory: Path, chroot: str, random: Random) -> DataFiles:
    """A fuzzy snapshot, perhaps compressed, and what came while it was written and later, in two logs."""
    server = Server(chroot, random)
    path = directory / f"snapshot.{ZXID:x}"
    with path.open("wb") as file:
        snapshot = SnapshotFile(file, ZXID)
        server.save(snapshot)
        snapshot.end()
    if random.random() < 0.3:
        path.with_suffix(f"{path.suffix}.gz").write_bytes(gzip.compress(path.read_bytes(), 1))
        path.unlink()
    for _ in range(random.randrange(40)):
        server.transact()
    middle = random.randrange(len(server.log) + 1)
    for first, log in (0, server.log[:middle]), (middle, server.log[middle:]):
        write_log(directory / f"log.{ZXID + 1 + first:x}", ZXID + 1 + first, log)
    return data_files([directory])


def rows_of(tree: ZkSource) -> list[Row]:
    listed = topics(tree, topic_names(tree), ENCODER, SALT)
    return sorted(chain(listed, other_families(tree, ENCODER, SALT)))


@settings(max_examples=examples(25))
@given(st.integers(), st.sampled_from(("", "/deep/kafka")), st.integers(1, 20))
def test_all_parts_together_give_the_rows_of_the_whole(seed: int, chroot: str, count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        files = write_files(Path(directory), chroot, Random(seed))
        division = divided(files, count, chroot)
        parts = Division.from_text(division.to_text()).parts
        assert parts == division.parts
        found = [row for part in parts for row in part_rows(files, part, chroot, ENCODER, SALT)]
        assert sorted(found) == rows_of(read_tree(files, lambda _: True, chroot).tree)


def test_what_does_not_fit_the_index_is_refused(tmp_path: Path) -> None:
    """A snapshot that a server has written anew after it was divided; one that is not in the order of a tree."""
    above = [(path, None, 0) for path in (*paths.ancestors(paths.TOPICS), paths.TOPICS)]
    some = [(paths.topic(name), TOPIC % 10, 0) for name in ("a", "b")]
    path = write_nodes(tmp_path, [*above, *some])
    files = data_files([tmp_path])
    *_, part = divided(files, 1).parts
    path.unlink()
    path.parent.rmdir()
    write_nodes(tmp_path, [*above, *reversed(some)])
    with pytest.raises(OperatorError, match="the snapshot was replaced while it was read"):
        part_rows(files, part, "", ENCODER, SALT)
    path.unlink()
    path.parent.rmdir()
    write_nodes(tmp_path, [*above, *some, (f"{paths.topic('a')}/partitions", None, 0)])
    with pytest.raises(OperatorError, match=r"a znode does not follow that of its topic \(at byte \d+\)") as raised:
        divided(files, 1)
    assert raised.value.where == str(path)
