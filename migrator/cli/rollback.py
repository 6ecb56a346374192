"""`migrator rollback`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import click

from migrator.cli.options import config_option
from migrator.cli.terminal import ask, say
from migrator.config.load import load_settings
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.log.lookup import header_at
from migrator.log.meta_properties import FILE_NAME
from migrator.migration.rollback import roll_back
from migrator.migration.seen_logs import VOTERS_KEY, SeenLog, newest_of
from migrator.parts.processes import port_is_open
from migrator.verify.kraft.files import membership_of, read_image
from migrator.verify.kraft.quorum_logs import logs_in
from migrator.wire.listener_settings import voter_endpoints
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.zookeeper.claim import Claimer
from migrator.zookeeper.clusters import read_cluster_id
from migrator.zookeeper.password_encoder import password_encoder
from migrator.zookeeper.session import ZooKeeperSession, options_from

_WARNING = (
    "This command returns the cluster of {hosts} to its ZooKeeper brokers. The brokers will elect a controller. "
    "All brokers must be in ZooKeeper mode."
)


@click.command("rollback")
@config_option(
    "Property file of a controller on this machine. Use the controller that led last, unless you also give --log.",
    required=True,
)
@click.option(
    "--log",
    "others",
    metavar="DIRECTORY",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Metadata directory of another controller, or a copy of it. The logs of a majority replace a lost log.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Roll back although newer logs are lost. Changes that only those logs hold are lost too.",
)
@click.option("--yes", is_flag=True, help="Don't ask.")
def command(config: Path, others: tuple[Path, ...], accept_loss: bool, yes: bool) -> None:
    """Return a cluster to its ZooKeeper brokers. Stop every controller first.

    The command corrects partition states and the controller epoch, so that no partition goes offline. Then it deletes
    the quorum's claim and /migration. Before the command, restart brokers that are in KRaft mode in ZooKeeper mode,
    with the migration on. After it, restart all brokers without the settings of the migration. Exit codes: 0 done, 2
    refused.
    """
    settings, _ = load_settings(config)
    _all_stopped(voter_endpoints(settings))
    directory = _newest(settings, others)
    _all_stopped(_voters_in(directory, settings))
    image = read_image(directory)

    def crc_at(offset: int) -> int | None:
        header = header_at(directory, offset)
        return None if header is None else header.crc

    with ZooKeeperSession(options_from(settings)) as session:
        read_cluster_id(session)
        if not yes:
            ask(_WARNING.format(hosts=settings.zookeeper_connect), "Go on?", abort=True)
        done = roll_back(session, image, password_encoder(settings), crc_at=crc_at, accept_loss=accept_loss)
        say(f"partition states whose version was raised to the partition epoch: {done.raised_states}")
        if done.raised_epoch is not None:
            say(f"/controller_epoch raised to {done.raised_epoch}")
        claimer = Claimer(session)
        elected = claimer.wait_for_zookeeper_controller()
        if elected is None and claimer.wake_brokers():
            elected = claimer.wait_for_zookeeper_controller()
    if elected is None:
        raise OperatorError(
            "the quorum's claim is deleted, but no broker has become the controller",
            remedy="Restart a broker in ZooKeeper mode. A broker stands for election when it starts",
        )
    say(f"broker {elected.broker_id} is the controller")


def _newest(settings: Settings, others: tuple[Path, ...]) -> Path:
    """The metadata directory with the newest log; says what may be missing in it.

    :raises OperatorError: no log can be used.
    """
    own = settings.metadata_directory
    at_hand = [own] if not others or (own / FILE_NAME).exists() else []
    logs = logs_in([*at_hand, *others])
    chosen = newest_of(list(logs), *_voters(settings, logs))
    if chosen.doubt:
        say(f"warning: {chosen.doubt}. Name the logs of other controllers with --log", err=True)
    return logs[chosen.newest]


def _all_stopped(voters: Mapping[int, ListenerEndpoint]) -> None:
    """:raises OperatorError: a controller of the quorum still listens."""
    for voter_id, at in voters.items():
        if port_is_open(at.port, at.host):
            raise OperatorError(
                f"controller {voter_id} still runs",
                where=f"{at.host}:{at.port}",
                remedy="Stop every controller of the quorum with SIGTERM, the leader last; then repeat the command",
            )


def _voters(settings: Settings, logs: Mapping[SeenLog, Path]) -> tuple[Collection[int], str]:
    """Their ids, and what names them: the newest log, if it does; else the configuration."""
    newest = max(logs, key=lambda log: (log.end.epoch, log.end.offset), default=None)
    voters = None if newest is None else membership_of(logs[newest]).voters
    if voters is None:
        return [voter.voter_id for voter in settings.voters], VOTERS_KEY
    return voters.ids, "the voters that the newest log names"


def _voters_in(directory: Path, settings: Settings) -> Mapping[int, ListenerEndpoint]:
    """Where the voters are that a log names; none at kraft.version 0."""
    voters, listener = membership_of(directory).voters, settings.controller_listeners[0]
    return {
        voter.voter_id: ListenerEndpoint(listener, at.host, at.port)
        for voter in (() if voters is None else voters.voters)
        for at in voter.endpoints
        if at.name.upper() == listener
    }
