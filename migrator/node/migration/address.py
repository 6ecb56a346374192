"""Checks before this node leads that ``zookeeper.connect`` leads to the cluster of this quorum.

A follower does not use ZooKeeper. With a wrong chroot it would look healthy until its election, and then stop the
migration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from migrator.errors import OperatorError
from migrator.zookeeper.clusters import NoClusterError

log = logging.getLogger(__name__)


async def check_address(read_cluster_id: Callable[[], str], own: str, hosts: str) -> None:
    """Warn if ZooKeeper has another cluster, or none. A ZooKeeper that does not answer is reported elsewhere.

    :param read_cluster_id: reads ``/cluster/id``; blocks.
    :param own: the cluster id of this quorum.
    """
    try:
        found = await asyncio.to_thread(read_cluster_id)
    except NoClusterError as error:
        _warn(error.where, error.what, error.remedy)
        return
    except OperatorError as error:
        log.debug("The cluster id in ZooKeeper could not be read: %s", error)
        return
    if found != own:
        remedy = "Correct zookeeper.connect in the property file of this controller, and restart it"
        _warn(hosts, f"the cluster there is {found}, and this quorum is of cluster {own}", remedy)


def _warn(where: str, what: str, remedy: str) -> None:
    log.warning("If this controller is elected, the migration stops: %s: %s. %s", where, what, remedy)
