"""Gathers all facts once, into one `Evidence`. It judges nothing.

`migrator preflight` calls `gather`, also when a rollout runs it on a controller's host. Every source is looked at, even
if another one fails; a failure becomes an entry of `Evidence.unknown`. Nothing is changed, but each port of a
controller is bound for a moment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from migrator.errors import MigratorError, OperatorError
from migrator.preflight.evidence import (
    DEFAULT_JUTE_MAXBUFFER,
    ControllerFile,
    Evidence,
    Trouble,
    UnknownFact,
    ZooKeeperFacts,
)
from migrator.preflight.files import FileGatherer
from migrator.preflight.host import cannot_verify, look_at_machine
from migrator.preflight.reading import ZooKeeperReading
from migrator.values import value
from migrator.zookeeper.clusters import NoClusterError
from migrator.zookeeper.password_encoder import password_encoder
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession, options_from
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.passwords import PasswordEncoder

Tell = Callable[[str], None]
ReadZooKeeper = Callable[[SessionOptions, Sequence[ControllerFile], Tell], ZooKeeperFacts]


@value
class PreflightRequest:
    """The sources to read. The first controller's file belongs to this host, the others may be copies from other hosts.
    ``zookeeper``: a connection string; None for that of the first controller's file."""

    controllers: tuple[Path, ...]
    brokers: tuple[Path, ...] = ()
    zookeeper: str | None = None
    jute_maxbuffer: int = DEFAULT_JUTE_MAXBUFFER
    roll_by_rack: bool = False
    """Whether the brokers of a rack will be restarted together."""
    verifies_here: bool = False
    """Whether ``verify`` will be run on this machine."""
    here: bool = False
    """Whether to look at this machine only, and neither at ZooKeeper nor at brokers."""


def read_zookeeper(options: SessionOptions, controllers: Sequence[ControllerFile], tell: Tell) -> ZooKeeperFacts:
    """Read the whole tree in a session of its own.

    :raises MigratorError: ZooKeeper does not answer, or holds no cluster.
    """
    tell(f"reading ZooKeeper {options.hosts}")
    encoder = password_encoder(controllers[0].settings) if controllers else PasswordEncoder(None, os.urandom)
    with ZooKeeperSession(options) as session:
        return ZooKeeperReading(session, encoder, tell).facts()


def gather(request: PreflightRequest, tell: Tell, read: ReadZooKeeper = read_zookeeper) -> Evidence:
    """Look at everything. A source that cannot be read is named in `Evidence.unknown`.

    :param tell: is called with sentences about the progress.
    :param read: reads ZooKeeper.
    """
    files = FileGatherer()
    tell("reading property files")
    seen = (files.controller(path, is_of_this_host=not number) for number, path in enumerate(request.controllers))
    controllers = tuple(it for it in seen if it is not None)
    brokers = tuple(it for it in map(files.broker, request.brokers) if it is not None)
    unknown = files.unknown
    zookeeper = no_cluster = None
    try:
        zookeeper = None if request.here else read(_options(request, controllers), controllers, tell)
    except NoClusterError as error:
        no_cluster = Trouble(error.where, error.what, error.remedy)
    except OperatorError as error:
        unknown.append(UnknownFact(error.where or "ZooKeeper", error.what, error.remedy))
    except MigratorError as error:
        unknown.append(UnknownFact("ZooKeeper", str(error), "Look at the ZooKeeper servers"))
    tell("looking at this machine, and asking brokers for their versions")
    registered, lost = ({}, ()) if zookeeper is None else (zookeeper.brokers, zookeeper.topics.lost)
    nameless = () if zookeeper is None else zookeeper.without_id.examples
    machine = look_at_machine(controllers, registered, lost, set(map(paths.name_of, nameless)))
    return Evidence(
        controllers=controllers,
        brokers=brokers,
        refused_files=tuple(files.refused),
        zookeeper=zookeeper,
        machine=replace(machine, cannot_verify=cannot_verify() if request.verifies_here else None),
        unknown=tuple(unknown),
        jute_maxbuffer=request.jute_maxbuffer,
        roll_by_rack=request.roll_by_rack,
        no_cluster=no_cluster,
    )


def _options(request: PreflightRequest, controllers: Sequence[ControllerFile]) -> SessionOptions:
    """The ZooKeeper session as the first controller would open it.

    :raises OperatorError: it could not, or no ZooKeeper is named.
    """
    hosts = request.zookeeper or (controllers[0].settings.zookeeper_connect if controllers else None)
    if hosts is None:
        raise OperatorError("no ZooKeeper is named", where="--zookeeper", remedy="Give --zookeeper HOSTS")
    return options_from(controllers[0].settings, hosts) if controllers else SessionOptions(hosts)
