"""One inventory with everything that a command needs: the parts of a rollout, and the directory of its journal.

Each `migrator rollout` command calls `site_of`, and `parts_at` to reach the cluster. The directory stands beside the
inventory unless the inventory names another one. Nodes that are gone by the journal are gone for the command, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from migrator.errors import OperatorError
from migrator.log.files import PRIVATE_DIRECTORY, sync_directory
from migrator.rollout.inventory import BYTES_MAX, Inventory, parse_inventory, refuse_large
from migrator.rollout.journal.journal import read_journal
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.parts import RolloutParts
from migrator.rollout.world import open_world
from migrator.values import value
from migrator.zookeeper.session import ZooKeeperSession

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
