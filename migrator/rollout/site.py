"""One inventory with everything that a command needs: the directory of its journal, and the parts of a rollout.

Each `migrator rollout` command calls `site_of`, and `parts_at` to reach the cluster: executor, observer, lock and
clock; tests put models in their place. The directory stands beside the inventory unless the inventory names another
one. Nodes that are gone by the journal are gone for the command, too. Nothing is connected before it is used, except
the ZooKeeper session. All parts are closed with the context.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

from migrator.clock import monotonic_ms, since_boot_ms, wall_ms
from migrator.config.load import read_properties, typed_settings
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.log.files import PRIVATE_DIRECTORY, sync_directory
from migrator.rollout.executors.executors import NodeExecutor, refuse_elsewhere
from migrator.rollout.executors.presets import PRESETS
from migrator.rollout.inventory import BYTES_MAX, ControllerKind, Inventory, Roll, parse_inventory, refuse_large
from migrator.rollout.journal.journal import read_journal
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.leaving_zookeeper import keep
from migrator.rollout.lock.lock import RolloutLock
from migrator.rollout.lock.places import FilePlace, ZooKeeperPlace
from migrator.rollout.lock.quorum import LeaderLock, QuorumPlace, our_leader
from migrator.rollout.meanwhile import Silences
from migrator.rollout.nodes import Node
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.modes import watched_keys
from migrator.rollout.ports import Executor
from migrator.rollout.seeing.brokers import BrokerEyes
from migrator.rollout.seeing.leader_says import LeaderSays, by_command
from migrator.rollout.seeing.observer import ClusterObserver
from migrator.rollout.seeing.zookeeper import ZooKeeperEyes
from migrator.seeing.quorum import QuorumEyes
from migrator.values import value
from migrator.zookeeper.session import ZooKeeperSession, options_from

STATE_SUFFIX = ".rollout"


@value
class Site:
    """``state``: the directory of the journal, the verdicts and the archive; it need not exist yet."""

    path: Path
    inventory: Inventory
    state: Path

    def make_state(self) -> None:
        """
        :raises OperatorError: the directory cannot be made.
        """
        try:
            self.state.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            sync_directory(self.state.parent)
        except OSError as error:
            raise OperatorError(
                f"the directory of the journal cannot be made: {error.strerror or error}",
                where=str(self.state),
                remedy="Name another one with 'state' in the inventory",
            ) from error


def site_of(path: Path, gone: Sequence[str] = (), back: Sequence[str] = ()) -> Site:
    """Read the inventory, and apply what the journal says of nodes that are gone.

    :param gone: names of nodes that are gone for good, beside those in the journal.
    :param back: names of nodes that the journal has as gone, and that are there again.
    :raises OperatorError: the inventory cannot be read or is wrong, or the journal is damaged.
    """
    try:
        with path.open("rb") as file:  # of a wrong file, or a device, only enough to refuse it
            content = file.read(BYTES_MAX + 1)
        refuse_large(content, str(path))  # before decoding: the last character may be incomplete
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise OperatorError(
            "the inventory is not in UTF-8", where=f"{path}: line {line}", remedy="Save it as UTF-8"
        ) from error
    except OSError as error:
        raise OperatorError(f"the inventory cannot be read: {error.strerror or error}", where=str(path)) from error
    inventory = parse_inventory(text, str(path))
    state = path.parent / (inventory.state or path.stem + STATE_SUFFIX)
    progress = progress_of(read_journal(state))
    left_out = progress.left_out
    if progress.cluster not in ("", inventory.cluster):
        raise OperatorError(
            f"the journal there is of the cluster {progress.cluster}, and the inventory is of {inventory.cluster}",
            where=str(state),
            remedy="Name another directory with 'state' in the inventory; or the name of the cluster as it was",
        )
    known = {node.name for node in inventory.nodes}  # the journal may name a node that is not in the inventory any more
    returned = {node.name for node in inventory.named(back, "--with-node")}
    for name in sorted(returned - left_out.keys()):
        raise OperatorError(f"{name} is not left out", where="--with-node", remedy="Leave the option out")
    return Site(path, inventory.without((*(left_out.keys() & known - returned), *gone)), state)


def parts_at(
    site: Site, tell: Callable[[str], None]
) -> AbstractAsyncContextManager[tuple[RolloutParts, ZooKeeperSession | None]]:
    return open_world(site.inventory, site.path, site.state, tell)


class SystemClock:
    """The clocks of this machine (`migrator.rollout.ports.Clock`)."""

    def wall_ms(self) -> int:
        return wall_ms()

    def monotonic_ms(self) -> int:
        return monotonic_ms()

    def since_boot_ms(self) -> int:
        return since_boot_ms()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@asynccontextmanager
async def open_world(
    inventory: Inventory, inventory_path: Path, state: Path, tell: Callable[[str], None]
) -> AsyncIterator[tuple[RolloutParts, ZooKeeperSession | None]]:
    """The parts, and a ZooKeeper session that need not be connected; None where 'access' names no ZooKeeper.

    :param inventory_path: the inventory's file; ``access`` is relative to its directory.
    :param state: the rollout's directory, which exists.
    :param tell: is called with what is done and waited for.
    :raises OperatorError: the inventory or its access file cannot be used. A node that does not answer is no error.
    """
    silences = Silences(tell)
    executor = _executor(inventory, silences.tell)
    access = inventory_path.parent / inventory.access
    settings = _access(access)
    clock = SystemClock()
    session = ZooKeeperSession(options_from(settings)) if settings.zookeeper_connect else None
    quorum = QuorumEyes(settings)
    files = _status_files(inventory, access)
    observer = ClusterObserver(
        None if session is None else ZooKeeperEyes(session),
        quorum,
        BrokerEyes(
            settings,
            placed=inventory.brokers.roll is Roll.RACK,
            watched=watched_keys(inventory.brokers.settings),
        ),
        files,
        None if inventory.controllers.kind is ControllerKind.STOCK else partial(_ask_there, executor, inventory),
    )

    def leader() -> Node | None:
        return our_leader(observer.quorum, inventory.controllers.nodes)

    lock = RolloutLock(
        None if session is None else ZooKeeperPlace(session),
        FilePlace(state),
        QuorumPlace(LeaderLock(files, executor, leader, inventory.controllers.program).ask) if files else None,
        may_be_gone=lambda: observer.is_finished,
        wall_ms=clock.wall_ms,
    )
    if session is not None:
        session.start_in_background()
    try:
        await quorum.catch_up(silences.tell)  # so that a command that looks only once sees the brokers
        keeps, connect = partial(keep, session), settings.zookeeper_connect or ""
        yield (
            RolloutParts(inventory, executor, observer, lock, clock, silences, keeps, quorum.unregister, connect),
            session,
        )
    finally:
        await observer.close()
        if session is not None:
            await asyncio.to_thread(session.close)


def refuse_wrong_executors(inventory: Inventory) -> None:
    """Refuse an inventory that a rollout would refuse before its first command, on any machine.

    :raises OperatorError: a preset is unknown, or a command or variable is missing for a node.
    """
    NodeExecutor(inventory.executors, _touched(inventory))


def _executor(inventory: Inventory, tell: Callable[[str], None]) -> NodeExecutor:
    refuse_elsewhere(inventory.executors, _touched(inventory))
    return NodeExecutor(inventory.executors, _touched(inventory), tell)


def _touched(inventory: Inventory) -> tuple[Node, ...]:
    return (*inventory.nodes, *inventory.controllers.stock.values())


async def _ask_there(executor: Executor, inventory: Inventory, leader_id: int) -> LeaderSays | None:
    controllers = inventory.controllers
    node = next((each for each in controllers.nodes if each.node_id == leader_id), None)
    return None if node is None else await by_command(executor, node, controllers.program)


def _access(path: Path) -> Settings:
    """:raises OperatorError: the file cannot be read, or names no controllers."""
    settings = typed_settings(read_properties(path), str(path))
    if not settings.controller_listeners:
        raise OperatorError(
            "controller.listener.names is not set", where=str(path), remedy="Copy it from a controller's property file"
        )
    if not settings.voters and not settings.bootstrap_servers:
        raise OperatorError(
            "neither controller.quorum.voters nor controller.quorum.bootstrap.servers is set",
            where=str(path),
            remedy="Copy it from a controller's property file",
        )
    return settings


def _status_files(inventory: Inventory, access: Path) -> list[Path]:
    """The access file, and the files of the controllers of this machine, because their sockets are here."""
    if inventory.controllers.kind is ControllerKind.STOCK:
        return []
    here = [
        Path(node.properties)
        for node in inventory.controllers.nodes
        if PRESETS[inventory.executors[node.executor].preset].here
    ]
    return list(dict.fromkeys([access, *here]))
