"""`migrator handover`: stock controllers take over from ours, one by one or by directory, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.drill.cluster import MIGRATOR, ClusterOptions, ControllerProcess
from migrator.drill.light.broker import LightBroker, LightBrokerMode
from migrator.drill.light.cluster import LightCluster
from migrator.drill.probes import all_report, dual_writing
from migrator.errors import ExitCode, OperatorError
from migrator.handover.execute import HandoverRun, OperatorCommands
from migrator.handover.plan import WantedHandover, Way
from migrator.parts.java import Jvm
from migrator.parts.kafka import KafkaRelease, StockKafka
from migrator.parts.processes import ChildProcess, run_to_end
from migrator.raft.transport import TransportError
from migrator.records.metadata import ZkMigrationState
from migrator.rollout.target_release import parse_target
from migrator.wire.schemas import build, request_type
from tests.patience import PATIENCE_SECONDS

OPTIONS = ClusterOptions(partitions=30, brokers=2, controllers=3, transport="grpc")
CREATE_TOPICS = request_type(19, 7)
PAUSE_SECONDS = 0.02
SHOWN = 3


async def until(what: str, condition: Callable[[], Awaitable[bool]]) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await condition():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE_SECONDS:.0f} s: {what}") from None


async def stop_ours(controller: ControllerProcess) -> None:
    code = await asyncio.to_thread(controller.stop)
    said = "" if controller.process is None else controller.process.tail()
    assert code == ExitCode.OK, f"controller {controller.node_id} ended with {code}: {said}"


class Services(OperatorCommands):
    """A service manager: stops our controllers and starts Kafka's when it finds a request in its folder."""

    def __init__(self, cluster: LightCluster, kafka: StockKafka) -> None:
        super().__init__(None, None, print)
        self.inbox = cluster.directory / "services"
        self.inbox.mkdir()
        self.stock: dict[int, ChildProcess] = {}
        self._cluster = cluster
        self._kafka = kafka
        self._task = asyncio.create_task(self._serve())

    async def stop(self, node_id: int) -> None:
        await stop_ours(self._cluster.controller(node_id))

    async def start(self, node_id: int, property_file: Path) -> None:
        running = self.stock.get(node_id)
        if running is None or running.exit_code() is not None:
            folder = property_file.parent
            command = self._kafka.command("kafka.Kafka", str(property_file), directory=folder, jvm=Jvm(heap="256m"))
            self.stock[node_id] = ChildProcess(f"stock {node_id}", command, output=folder / "stock.log")

    def commands(self) -> list[str]:
        """Options of `migrator handover run`; the requests are carried out later."""
        stop, start = self.inbox / "stop-{node}", self.inbox / "start-{node}"
        return ["--stop-command", f"touch {stop}", "--start-command", f"cp {{file}} {start}"]

    async def _serve(self) -> None:
        while True:
            for request in sorted(self.inbox.iterdir()):
                what, node_id = request.name.split("-")
                request.unlink()  # a request that comes while this one is carried out is another one
                if what == "stop":
                    await self.stop(int(node_id))
                else:
                    controller = self._cluster.controller(int(node_id))
                    await self.start(int(node_id), controller.property_file.with_name("controller.stock.properties"))
            await asyncio.sleep(0.05)

    async def stop_stock(self, *nodes: int) -> None:
        """Stop these controllers of Kafka's, with time to end: one that is killed may leave half a batch in its log.
        Kafka's exit code varies: its shutdown closes the log while it may still be loading."""
        for node in nodes:
            code = await asyncio.to_thread(self.stock[node].stop, grace_seconds=PATIENCE_SECONDS)
            assert code != -signal.SIGKILL, f"Kafka's controller {node} does not end: {self.stock[node].tail()}"

    async def close(self) -> None:
        """Kill what runs; an error of the manager itself is the test's."""
        for process in self.stock.values():
            await asyncio.to_thread(process.kill)
        await ended(self._task)


async def ended(task: asyncio.Task[None]) -> None:
    """End a task; raises what had ended it before."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


class Creator:
    """Creates topic after topic at the controller that leads."""

    def __init__(self, cluster: LightCluster) -> None:
        self.created: list[str] = []
        self.longest_wait_seconds = 0.0
        self._channel = cluster.channel("creator")
        self._number = 0

    async def create(self) -> None:
        """One topic, however often that has to be tried."""
        name = f"created-{self._number}"
        self._number += 1
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
        request = build(CREATE_TOPICS, topics=(topic,), timeout_ms=10_000, validate_only=False)
        begin = time.monotonic()
        while why := await self._refusal(request):
            assert time.monotonic() - begin < PATIENCE_SECONDS, f"{name} after {PATIENCE_SECONDS:.0f} s: {why}"
            await asyncio.sleep(PAUSE_SECONDS)
        self.created.append(name)
        self.longest_wait_seconds = max(self.longest_wait_seconds, time.monotonic() - begin)

    async def _refusal(self, request: Any) -> str:
        """Why the topic was not created, or "". A request without an answer may be carried out: then the topic exists
        at the next attempt."""
        try:
            (topic,) = (await self._channel.request(request, timeout_seconds=PATIENCE_SECONDS)).topics
        except TransportError as error:
            return str(error)
        exists = topic.error_code in (ErrorCode.none, ErrorCode.topic_already_exists)
        return "" if exists else f"{topic.error_code.name}: {topic.error_message}"

    async def run(self) -> None:
        while True:
            await self.create()
            await asyncio.sleep(PAUSE_SECONDS)

    async def close(self) -> None:
        await self._channel.close()


async def migrated(directory: Path) -> None:
    """Our three controllers migrate a cluster and finish; handing over before that is refused."""
    cluster = LightCluster(directory, OPTIONS)
    try:
        await asyncio.to_thread(cluster.fill)
        for broker in cluster.brokers:
            await broker.start()
        for controller in cluster.controllers:
            await asyncio.to_thread(controller.format)
            await asyncio.to_thread(controller.start)
        await until("dual-write", lambda: dual_writing(cluster))
        for broker in cluster.brokers:
            await broker.stop()
            await start_in_kraft_mode(broker)
        await until("dual-write goes on", lambda: dual_writing(cluster))
        await refused(cluster, "3.9.1", Way.ROLLING, "not finished")
        await refused(cluster, "4.1.0", Way.ROLLING, "cannot join")
        for controller in cluster.controllers:
            controller.set_migration(enabled=False)
            await stop_ours(controller)
            await asyncio.to_thread(controller.start)
            await until("somebody leads", lambda: _is_led(cluster))
        await until("the migration is finished", lambda: all_report(cluster, "Finished"))
        for controller in cluster.controllers:
            await stop_ours(controller)
    finally:
        await cluster.close()


async def start_in_kraft_mode(broker: LightBroker) -> None:
    await broker.start(LightBrokerMode.KRAFT)

    async def runs() -> bool:
        return broker.running.is_set()

    await until(f"broker {broker.options.broker_id} runs in KRaft mode", runs)


async def _is_led(cluster: LightCluster) -> bool:
    return await cluster.leader() is not None and len(await cluster.statuses()) == len(cluster.controllers)


async def refused(cluster: LightCluster, release: str, way: Way, why: str) -> None:
    with pytest.raises(OperatorError, match=why):
        await hand_over(cluster, release, way, None)


async def hand_over(cluster: LightCluster, release: str, way: Way, services: Services | None) -> None:
    """All voters, by the function that the command calls."""
    files = [controller.property_file for controller in cluster.controllers]
    run = HandoverRun(
        files, WantedHandover(parse_target(release), way), services or Nobody(None, None, print), tell=print
    )
    await run.run()


class Nobody(OperatorCommands):
    """Stops and starts nothing."""

    async def stop(self, node_id: int) -> None:
        raise AssertionError(node_id)

    async def start(self, node_id: int, property_file: Path) -> None:
        raise AssertionError(node_id)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the directories of three controllers of ours, after a finished migration."""
    directory = tmp_path_factory.mktemp("finished")
    asyncio.run(migrated(directory))
    return directory


@asynccontextmanager
async def quorum(finished: Path, directory: Path, kafka: StockKafka) -> AsyncIterator[tuple[LightCluster, Services]]:
    """Copies of those directories, in use by a quorum of ours, with a broker in KRaft mode; ZooKeeper is gone."""
    cluster = LightCluster(directory, OPTIONS)
    services = Services(cluster, kafka)
    try:
        for controller in cluster.controllers:
            controller.set_migration(enabled=False)
            shutil.copytree(finished / controller.directory.name / "metadata", controller.metadata_directory)
            await asyncio.to_thread(controller.start)
        await until("somebody leads", lambda: _is_led(cluster))
        await start_in_kraft_mode(cluster.brokers[0])
        yield cluster, services
    finally:
        await cluster.close()
        await services.close()


def assert_nothing_is_lost(finished: Path, cluster: LightCluster, created: list[str]) -> None:
    before = ControllerProcess(0, finished / cluster.controllers[0].directory.name, {}).image()
    for controller in cluster.controllers:
        image = controller.image()
        assert image.features.zk_migration_state is ZkMigrationState.POST_MIGRATION
        lost = sorted((set(before.topics.ids) | set(created)) - set(image.topics.ids))
        assert not lost, f"controller {controller.node_id} lacks {len(lost)} topics, such as {lost[:SHOWN]}"
        changed = sorted(name for name, topic_id in before.topics.ids.items() if image.topics.ids[name] != topic_id)
        assert not changed, f"controller {controller.node_id} has other ids of {changed[:SHOWN]}"


@pytest.mark.lane("test-long")  # the rollout hands over one by one in make test-all
async def test_one_by_one_with_topics_created_all_the_time(
    finished: Path, kafka_391: StockKafka, tmp_path: Path
) -> None:
    async with quorum(finished, tmp_path, kafka_391) as (cluster, services):
        creator = Creator(cluster)
        await creator.create()
        creating = asyncio.create_task(creator.run())
        files = [word for controller in cluster.controllers for word in ("-c", str(controller.property_file))]
        checked = await asyncio.to_thread(
            run_to_end, "check", [MIGRATOR, "handover", "check", *files], timeout_seconds=PATIENCE_SECONDS
        )
        assert "the migration is finished" in checked
        assert all(key in checked for key in ("controller.stock.properties", "migrator.grpc.voters"))
        command = [MIGRATOR, "handover", "run", "--to", "3.9.1", "--yes", *services.commands(), *files]
        for number, said in enumerate(("stop this program", "start Kafka", "stop this program")):
            output = tmp_path / f"handover-{number}.log"
            with ChildProcess("handover", command, output=output) as run:
                await asyncio.to_thread(run.wait_for_output, said, timeout_seconds=PATIENCE_SECONDS)
                run.kill()
        run = ChildProcess("handover", command, output=tmp_path / "handover.log")
        try:
            code = await asyncio.to_thread(run.wait, timeout_seconds=2 * PATIENCE_SECONDS)
        finally:
            run.kill()
        said_last = run.output_text()
        assert code == 0, f"exit code {code}: {said_last}"
        print(said_last)  # noqa: T201 - shown with -rP
        count = len(creator.created)
        await until("topics are created at the stock quorum", lambda: _has_grown(creator, count, creating))
        await ended(creating)
        await creator.close()
        print(f"longest wait for an answer: {creator.longest_wait_seconds:.1f} s")  # noqa: T201
        await hand_over(cluster, "3.9.1", Way.ROLLING, None)  # again: nothing is left to do
        await gets_a_new_disk(cluster, services)
        await goes_back(cluster, services)
        await services.stop_stock(*(controller.node_id for controller in cluster.controllers[1:]))
        assert_nothing_is_lost(finished, cluster, creator.created)


async def gets_a_new_disk(cluster: LightCluster, services: Services) -> None:
    """A stock voter whose directory is empty is formatted and started, as the others have everything."""
    lost = cluster.controllers[-1]
    await services.stop_stock(lost.node_id)
    shutil.rmtree(lost.metadata_directory)
    await hand_over(cluster, "3.9.1", Way.ROLLING, services)


async def goes_back(cluster: LightCluster, services: Services) -> None:
    """Ours runs on the directory of a stock controller, beside stock ones."""
    first = cluster.controllers[0]
    await services.stop_stock(first.node_id)
    await asyncio.to_thread(first.start)
    await until("ours knows leader and migration", lambda: _follows(first))
    await stop_ours(first)


async def _follows(controller: ControllerProcess) -> bool:
    status = await controller.status()
    return status is not None and status.quorum.leader_id >= 0 and status.migration.public_state == "Finished"


async def _has_grown(creator: Creator, count: int, creating: asyncio.Task[None]) -> bool:
    if creating.done():
        creating.result()
    return len(creator.created) > count


@pytest.mark.parametrize("release", [pytest.param("3.9.1", marks=pytest.mark.lane("test-long")), "4.1.0"])
async def test_by_directory(finished: Path, tmp_path: Path, release: str) -> None:
    kafka = KafkaRelease(release).fetch()
    async with quorum(finished, tmp_path, kafka) as (cluster, services):
        creator = Creator(cluster)
        await creator.create()
        await hand_over(cluster, release, Way.DIRECTORY, services)
        await creator.create()
        await creator.close()
        await services.stop_stock(*services.stock)
        assert_nothing_is_lost(finished, cluster, creator.created)
