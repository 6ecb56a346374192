"""Pieces that read a real ZooKeeper, filled as a Kafka cluster would fill it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Self

from migrator.clock import wall_ms
from migrator.drill.cluster import CLUSTER_ID, ENCODER_SECRET, zookeeper_client
from migrator.drill.workload.fill import FillOptions, fill
from migrator.image.loader import ImageLoader
from migrator.image.model import MetadataImage
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.snapshots import SnapshotWriter
from migrator.migration.copying.compare import WriteChunk, compare
from migrator.migration.copying.reading import Copy, CopyBatch, decode_all
from migrator.migration.copying.worker import CopyTask, Tools, Worker
from migrator.migration.translate.source import read_topics
from migrator.migration.translate.target import Target
from migrator.migration.translate.to_records import RecordReader
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.raft.messages import EpochOffset
from migrator.records.batch import iter_batches, restamp
from migrator.records.codec import encode_all
from migrator.records.metadata import FeatureLevelRecord
from migrator.verify.verdict import VerifyRequest
from migrator.verify.verify import verify
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from tests.bench.piece import Piece
from tests.bench.pieces_memory import BATCH_RECORDS, BROKERS, LEVEL
from tests.image.support.snapshots import snapshot_records

CONTROLLER_EPOCH = 8


class Store:
    """A filled ZooKeeper and a reader of it, for as long as the context lasts."""

    def __init__(self, server: EmbeddedZooKeeper, chroot: str, partitions: int) -> None:
        self.partitions = partitions
        self.directory = server.directory
        self.hosts = server.hosts + chroot
        self.options = SessionOptions(self.hosts)
        self.passwords = PasswordEncoder(ENCODER_SECRET, os.urandom)
        self._server = server.hosts
        self._chroot = chroot
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with zookeeper_client(self._server) as client:
            client.ensure_path(self._chroot)
        with zookeeper_client(self.hosts) as client:
            now_ms = wall_ms()
            fill(client, FillOptions(CLUSTER_ID, BROKERS, self.partitions, now_ms, ENCODER_SECRET))
            client.set(paths.PRODUCER_IDS, client.get(paths.PRODUCER_IDS)[0].replace(b'"broker":1', b'"broker":-1'))
            client.delete(f"{paths.DELETE_TOPICS}/drill-doomed")
        session = self._stack.enter_context(ZooKeeperSession(self.options))
        self.reader = BulkReader(session)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def copy(self) -> Copy:
        """One that nothing has begun yet."""
        return Copy(
            self.reader, passwords=self.passwords, random=Random(0), level=LEVEL, batch_records=BATCH_RECORDS,
            now_ms=lambda: 0,
        )  # fmt: skip

    @cached_property
    def image(self) -> MetadataImage:
        """What a copy makes of it."""
        loader = ImageLoader()
        loader.append(0, 1, 0, [FeatureLevelRecord("metadata.version", LEVEL)])
        for message in self.copy().run():
            if isinstance(message, CopyBatch):
                stamped, _ = restamp(message.data, loader.end_offset, 1)
                for batch in iter_batches(stamped):
                    loader.append(batch.header.base_offset, 1, 0, [record for record, _ in batch.records()])
                    loader.apply()
        loader.commit(loader.end_offset)
        return loader.published


def _bulk_read(store: Store) -> Callable[[], str]:
    def run() -> str:
        count = sum(znode is not None for znode in store.reader.read(states))
        return f"{count:,} states"

    topics = RecordReader(store.reader, passwords=store.passwords, random=Random(0)).topics()
    states = [
        paths.partition_state(topic.znodes.name, partition) for topic in topics for partition in topic.znodes.states
    ]
    return run


def _read_topics(store: Store) -> Callable[[], str]:
    (names,) = store.reader.children([paths.TOPICS])

    def run() -> str:
        everything = read_topics(store.reader, sorted(names or ()), lambda _name, _topic: range(10))
        return f"{sum(len(topic.states) for topic in everything):,} states, undecoded"

    return run


def _first_reading(store: Store) -> Callable[[], str]:
    def run() -> str:
        *_, last = decode_all(store.reader, passwords=store.passwords, random=Random(0))
        return f"{last.records:,} records"

    return run


def _copy(store: Store) -> Callable[[], str]:
    def run() -> str:
        sizes = [len(message.data) for message in store.copy().run() if isinstance(message, CopyBatch)]
        return f"{len(sizes)} batches, {sum(sizes) / 1e6:.1f} MB, both readings"

    return run


def _copy_in_worker(store: Store) -> Callable[[], str]:
    async def stream() -> tuple[float, int]:
        begin = time.perf_counter()
        first, size = 0.0, 0
        async with Worker(CopyTask(LEVEL, BATCH_RECORDS), Tools(store.options, store.passwords)) as worker:
            async for message in worker.messages():
                first = first or time.perf_counter() - begin
                size += len(message.data) if isinstance(message, CopyBatch) else 0
        return first, size

    def run() -> str:
        first, size = asyncio.run(stream())
        return f"first batch after {first:.2f} s, {size / 1e6:.1f} MB"

    return run


def _compare(store: Store) -> Callable[[], str]:
    image = store.image
    target = Target(image, passwords=store.passwords, controller_epoch=CONTROLLER_EPOCH)

    def run() -> str:
        found = compare(store.reader, target, sys.maxsize)
        return f"{sum(len(message.writes) for message in found if isinstance(message, WriteChunk))} writes"

    return run


def _verify(store: Store) -> Callable[[], str]:
    directory = _log_directory(store.directory / "metadata", store.image)

    def run() -> str:
        verdict = verify(VerifyRequest(f"{store.hosts}", str(directory), config=str(_config(store))))
        comparison = verdict.comparison
        return f"{comparison.rows:,} rows, {comparison.differences} differ, Spark's start included"

    return run


def _config(store: Store) -> Path:
    """A property file for the password encoder's secret."""
    file = store.directory / "verify.properties"
    file.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\n"
        "controller.listener.names=C\nlisteners=C://127.0.0.1:1\nlistener.security.protocol.map=C:PLAINTEXT,B:PLAINTEXT\ninter.broker.listener.name=B\n"
        f"log.dirs={store.directory / 'metadata'}\nzookeeper.connect={store.hosts}\n"
        f"zookeeper.metadata.migration.enable=true\npassword.encoder.secret={ENCODER_SECRET}\n"
    )
    return file


def _log_directory(directory: Path, image: MetadataImage) -> Path:
    folder = directory / DIRECTORY_NAME
    folder.mkdir(parents=True)
    snapshot_id = EpochOffset(1, image.provenance.offset + 1)
    with SnapshotWriter(folder, snapshot_id, last_contained_log_timestamp_ms=0, now_ms=0) as writer:
        writer.append(encode_all(snapshot_records(image), LEVEL), now_ms=0)
        writer.freeze(now_ms=0)
    return directory


ZOOKEEPER_PIECES: tuple[Piece[Store], ...] = (
    Piece("ZooKeeper: bulk read of states", 1.0, _bulk_read),
    Piece("ZooKeeper: read topics, configs, states", 1.3, _read_topics),
    Piece("first reading: read and decode", 2.0, _first_reading),
    Piece("copy: both readings, encoded", 4.5, _copy),
    Piece("copy in its worker process", 4.5, _copy_in_worker),
    Piece("reconcile of an equal state", 2.5, _compare),
)
VERIFY_PIECES: tuple[Piece[Store], ...] = (Piece("verify in Spark", None, _verify),)
