"""Two of three voters are gone for good: the third goes on alone, others join, and who was given up stays out."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from migrator.drill.cluster import CLUSTER_ID, COMMAND_SECONDS, MIGRATOR, ControllerProcess
from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.log.meta_properties import read_meta_properties
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import free_port, run_to_end
from migrator.records.uuid import ZERO_UUID, uuid_to_text
from migrator.verify.kraft.files import last_of_log, membership_of, read_image
from tests.drill.support.stock_controllers import StockController
from tests.interop.support.changing_voters import ChangingVoters, Writers
from tests.parts.support.kafka_tools import dump_log

SURVIVOR = 3
LOST = (1, 2)
CLIENTS = 3
WRITES = 60


def names(image: MetadataImage) -> set[str | None]:
    return {entity.entity_name for key in image.quotas for entity in key}


def pair(controller: ControllerProcess) -> str:
    found = read_meta_properties(controller.metadata_directory)
    assert found is not None
    return f"{controller.node_id}@{uuid_to_text(found.directory_id or ZERO_UUID)}"


def recover(quorum: ChangingVoters, lost: list[str], *more: str) -> str:
    """The command on the survivor's machine; what it says.

    :raises OperatorError: it was refused.
    """
    file = str(quorum.controllers[SURVIVOR].property_file)
    named = [word for key in lost for word in ("--lost", key)]
    command = [MIGRATOR, "quorum", "recover", "-c", file, *named, *more]
    return run_to_end("recover", command, timeout_seconds=COMMAND_SECONDS)


async def written(quorum: ChangingVoters, prefix: str) -> Writers:
    """Clients that have written, and have ended."""
    writers = Writers(quorum, CLIENTS, prefix)
    await quorum.until(lambda _: len(writers.acknowledged) > WRITES)
    await writers.end()
    return writers


def lose(quorum: ChangingVoters, kept_copy: Path) -> list[str]:
    """Kill all, keep a copy of controller 1's directory, and delete those of both lost ones; their keys."""
    for controller in quorum.controllers.values():
        controller.kill()
    keys = [pair(quorum.controllers[node]) for node in LOST]
    shutil.copytree(quorum.controllers[1].metadata_directory, kept_copy, ignore=shutil.ignore_patterns("*.sock"))
    for node in LOST:
        shutil.rmtree(quorum.controllers[node].metadata_directory)
    return keys


async def test_a_survivor_goes_on_others_join_and_the_lost_ones_stay_out(tmp_path: Path) -> None:
    quorum = ChangingVoters(tmp_path, size=3, voters=3)
    survivor = quorum.controllers[SURVIVOR]
    old = returned(quorum, tmp_path / "returned")
    try:
        await asyncio.to_thread(quorum.format_and_start)
        await quorum.until_caught_up()
        first = await written(quorum, "before")
        with pytest.raises(OperatorError, match="another process uses this directory"):
            await asyncio.to_thread(recover, quorum, [])
        lost = await asyncio.to_thread(lose, quorum, old.metadata_directory)
        had = names(read_image(survivor.metadata_directory))
        with pytest.raises(OperatorError, match=r"a majority of the voters .* is not confirmed as lost"):
            await asyncio.to_thread(recover, quorum, [], "--force", "--yes-cluster-id", CLUSTER_ID)
        told = await asyncio.to_thread(recover, quorum, lost, "--force", "--yes-cluster-id", CLUSTER_ID)
        assert f"refused for ever: {', '.join(lost)}" in told
        await asyncio.to_thread(survivor.start)
        second = await written(quorum, "alone")
        await rejoin(quorum)
        epoch = (await quorum.until(lambda found: voters_of(found) == {1, 2, 3})).leader_epoch
        assert epoch > 1_000_000
        end = last_of_log(old.metadata_directory)
        await asyncio.to_thread(old.start)
        assert old.process is not None
        await asyncio.to_thread(old.process.wait_for_output, "refuses this controller", timeout_seconds=COMMAND_SECONDS)
        third = await written(quorum, "together")
        found = await quorum.until(lambda _: True)
        assert found.leader_epoch == epoch, "the lost controller has unseated no leader"
        assert voters_of(found) == {1, 2, 3}
        assert last_of_log(old.metadata_directory) == end, "it gets no records"
        image = await quorum.image()
        assert had <= names(image), "what the survivor had"
        assert len(had & set(first.acknowledged)) > 0
        assert second.lost(image) == third.lost(image) == []
        print(  # noqa: T201 - shown with -rP
            f"{len(first.acknowledged)} writes before, {len(first.lost(image))} of them not on the survivor; "
            f"{len(second.acknowledged) + len(third.acknowledged)} afterwards, none lost; epoch {epoch}"
        )
    finally:
        old.kill()
        await asyncio.to_thread(quorum.close)


def returned(quorum: ChangingVoters, directory: Path) -> ControllerProcess:
    """Controller 1 as it was, on another machine."""
    like = quorum.controllers[1].properties
    keys = {key: text for key, text in like.items() if key != "log.dirs"}
    here = {"listeners": f"CONTROLLER://127.0.0.1:{free_port()}", "migrator.grpc.listener": f"127.0.0.1:{free_port()}"}
    return ControllerProcess(1, directory, keys | here)


async def rejoin(quorum: ChangingVoters) -> None:
    """The lost controllers' machines get new directories, and join."""
    for node in LOST:
        await asyncio.to_thread(quorum.format_first, node, ["--no-initial-controllers"])
        await asyncio.to_thread(quorum.controllers[node].start)
    await quorum.until_caught_up()
    await quorum.order("add", "1,2", "--wait")


def voters_of(found: Any) -> set[int]:
    return {row.replica_id for row in found.current_voters}


async def test_a_stock_controller_leads_alone_in_the_recovered_directory(tmp_path: Path, kafka_391: StockKafka) -> None:
    quorum = ChangingVoters(tmp_path, size=3, voters=3)
    survivor = quorum.controllers[SURVIVOR]
    stock = StockController(kafka_391, survivor)
    try:
        await asyncio.to_thread(quorum.format_and_start)
        await quorum.until_caught_up()
        await written(quorum, "before")
        lost = await asyncio.to_thread(lose, quorum, tmp_path / "copy")
        await asyncio.to_thread(recover, quorum, lost, "--force", "--yes-cluster-id", CLUSTER_ID)
        had = read_image(survivor.metadata_directory)
        end = last_of_log(survivor.metadata_directory)
        (segment,) = (survivor.metadata_directory / "__cluster_metadata-0").glob("*.log")
        text = await asyncio.to_thread(dump_log, kafka_391, segment, directory=tmp_path)
        assert "refused.voters" in text
        assert f"partitionLeaderEpoch: {end.epoch}" in text
        quorum.controllers = {SURVIVOR: stock}
        await asyncio.to_thread(stock.start)
        found = await quorum.until(lambda _: True)
        assert (found.leader_id, voters_of(found)) == (SURVIVOR, {SURVIVOR})
        assert found.leader_epoch > end.epoch
        more = await written(quorum, "stock")
        await asyncio.to_thread(stock.stop)
        image = read_image(survivor.metadata_directory)
        assert names(image) == names(had) | set(more.acknowledged)
        assert image.configs == had.configs
        voters = membership_of(survivor.metadata_directory).voters
        assert voters is not None
        assert voters.ids == {SURVIVOR}
    finally:
        await asyncio.to_thread(stock.kill)
        await asyncio.to_thread(quorum.close)
