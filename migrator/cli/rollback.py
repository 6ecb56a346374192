"""`migrator rollback`: returns a cluster to its ZooKeeper brokers while all controllers are stopped.

`migrator.migration.rollback` does the work. Before it asks, the command checks that no controller listens, that the
directory is of this cluster, and that the log used is the newest. A loss of confirmed changes needs ``--accept-loss``.
An interrupted rollback is finished by the same command.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import click

from migrator.cli.options import config_option
from migrator.cli.terminal import ask, confirm_cluster_id, say
from migrator.clock import wall_ms
from migrator.config.load import load_settings
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.log.lookup import header_at
from migrator.log.meta_properties import FILE_NAME, read_meta_properties
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.migration.abandoned_claim import (
    WATCH_SECONDS,
    check_named,
    check_own_log,
    check_silent,
    described,
    examine,
    read_left_overs,
)
from migrator.migration.rollback import check_way_back, log_unfit, look, old_orders, release, roll_back
from migrator.migration.seen_logs import VOTERS_KEY, SeenLog, newest_of
from migrator.parts.processes import port_is_open, probe
from migrator.verify.kraft.files import last_of_log, membership_of, read_image
from migrator.verify.kraft.quorum_logs import logs_in
from migrator.wire.listener_settings import voter_endpoints
from migrator.zookeeper.claim import Claimer
from migrator.zookeeper.clusters import read_cluster_id
from migrator.zookeeper.ops import Delete
from migrator.zookeeper.password_encoder import password_encoder
from migrator.zookeeper.session import ZooKeeperSession, options_from

Controller = tuple[str, str, int]
"""Name, host and port."""

_WARNING = (
    "This command returns the cluster of {hosts} to its ZooKeeper brokers. The brokers will elect a controller. "
    "All brokers must be in ZooKeeper mode."
)
_WITHOUT_LOG = (
    "Changes that the quorum had confirmed and not yet written to ZooKeeper are lost: only a log could tell which they "
    "are. Do not go on if the migration was finished, or if a controller of that quorum still runs on any machine."
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
    "--without-log",
    is_flag=True,
    help="End the claim of a quorum whose logs are all lost, by what ZooKeeper shows alone. Shows what it found first.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Roll back although newer logs are lost. Changes that only those logs hold are lost too.",
)
@click.option(
    "--gone",
    metavar="NODE",
    multiple=True,
    help="With --without-log: the id of a broker or controller that is gone for good, or HOST:PORT of a controller. "
    "Repeat for each.",
)
@click.option("--yes", is_flag=True, help="Don't ask. Not enough for --without-log.")
@click.option("--yes-cluster-id", metavar="ID", help="With --without-log: the cluster's id, instead of typing it.")
def command(
    config: Path,
    others: tuple[Path, ...],
    without_log: bool,
    accept_loss: bool,
    gone: tuple[str, ...],
    yes: bool,
    yes_cluster_id: str | None,
) -> None:
    """Return a cluster to its ZooKeeper brokers. Stop every controller first.

    The command corrects partition states and the controller epoch, so that no partition goes offline. It shows and
    removes old orders to delete topics, move replicas and elect leaders. Then it deletes the quorum's claim and
    /migration. Before the command, restart brokers that are in KRaft mode in ZooKeeper mode,
    with the migration on. After it, restart all brokers without the settings of the migration. Exit codes: 0 done, 2
    refused.
    """
    if without_log:
        _check_options(others, yes=yes)
        _end_claim(load_settings(config)[0], yes_cluster_id, frozenset(gone), accept_loss=accept_loss)
    elif gone:
        raise OperatorError("only --without-log takes it", where="--gone", remedy="Leave --gone out")
    elif yes_cluster_id is not None:
        raise OperatorError("only --without-log asks for it", where="--yes-cluster-id", remedy="Give --yes instead")
    else:
        _roll_back(load_settings(config)[0], others, accept_loss=accept_loss, ask_first=not yes)


def _check_options(others: tuple[Path, ...], *, yes: bool) -> None:
    """:raises OperatorError: an option contradicts --without-log."""
    if others:
        raise OperatorError(
            "--without-log and --log exclude each other", where="--log", remedy="Give --log: a log tells more"
        )
    if yes:
        raise OperatorError(
            "--yes does not answer the question of --without-log, which asks for the cluster id",
            where="--yes",
            remedy="Give --yes-cluster-id with the cluster.id of a broker's meta.properties",
        )


def _roll_back(settings: Settings, others: tuple[Path, ...], *, accept_loss: bool, ask_first: bool) -> None:
    running = _running(_configured(settings))
    directory = _newest(settings, others)
    running = running or _running(_in_log(directory, settings))
    image = read_image(directory)
    check_way_back(image)  # first: no operator should stop a quorum for an impossible rollback
    _all_stopped(running)

    def crc_at(offset: int) -> int | None:
        header = header_at(directory, offset)
        return None if header is None else header.crc

    with ZooKeeperSession(options_from(settings)) as session:
        _same_cluster(directory, read_cluster_id(session), settings)
        view = look(session, image, crc_at=crc_at, accept_loss=accept_loss)
        for accepted in log_unfit(view, image, crc_at):
            say(f"accepted with --accept-loss: {accepted}")
        orders = old_orders(session, view, image)
        for order in orders.told:
            say(f"the command will remove this order, which a ZooKeeper controller would carry out: {order}")
        if ask_first:
            ask(_WARNING.format(hosts=settings.zookeeper_connect), "Go on?", abort=True)
        passwords = password_encoder(settings)
        done = roll_back(session, image, passwords, crc_at=crc_at, accept_loss=accept_loss, shown=orders)
        say(f"partition states whose version was raised to the partition epoch: {done.raised_states}")
        _finish(session, done.raised_epoch)


def _end_claim(settings: Settings, given_id: str | None, gone: Collection[str], *, accept_loss: bool) -> None:
    """`rollback --without-log`: checks everything before it asks, and asks before it writes."""
    controllers = [*_configured(settings), *_bootstrap(settings)]
    _all_stopped(_running(controllers))
    _all_seen(controllers, gone)
    with ZooKeeperSession(options_from(settings)) as session:
        cluster_id = read_cluster_id(session)
        _same_cluster(settings.metadata_directory, cluster_id, settings)
        _pass_over_log(settings.metadata_directory, accept_loss=accept_loss)
        found = read_left_overs(session)
        for line in described(found, session.options.hosts):
            say(line)
        check_named(found, (voter.voter_id for voter in settings.voters), settings.source, gone)
        examine(found, wall_ms(), gone=gone, accept_loss=accept_loss)
        if found.ops:
            say(f"watching for {WATCH_SECONDS:g} s whether a controller still writes there")
            check_silent(session, found.view, WATCH_SECONDS)
            doomed = " and ".join(op.path for op in found.ops if isinstance(op, Delete))
            say(f"{_WITHOUT_LOG} The command will delete {doomed}.")
            confirm_cluster_id(cluster_id, given_id, whose=f"the cluster at {session.options.hosts}")
        else:
            say("no KRaft claim and no /migration is left")
        release(session, found.view, found.raised_epoch, found.orders)
        _finish(session, found.raised_epoch)


def _same_cluster(directory: Path, cluster_id: str, settings: Settings) -> None:
    """:raises OperatorError: the metadata directory is of another cluster than ZooKeeper."""
    formatted = read_meta_properties(directory)
    if formatted is not None and formatted.cluster_id != cluster_id:
        raise OperatorError(
            f"this directory is of cluster {formatted.cluster_id}; ZooKeeper at {settings.zookeeper_connect} is of "
            f"cluster {cluster_id}",
            where=str(directory / FILE_NAME),
            remedy=f"Nothing was changed. Correct log.dirs or zookeeper.connect in {settings.source}",
        )


def _finish(session: ZooKeeperSession, raised_epoch: int | None) -> None:
    """Wait for the brokers' election.

    :raises OperatorError: no broker was elected.
    """
    if raised_epoch is not None:
        say(f"/controller_epoch raised to {raised_epoch}")
    claimer = Claimer(session)
    elected = claimer.wait_for_zookeeper_controller()
    if elected is None and claimer.wake_brokers():
        elected = claimer.wait_for_zookeeper_controller()
    if elected is None:
        raise OperatorError(
            "no claim of a quorum is left, but no broker has become the controller",
            where=session.options.hosts,
            remedy="Restart a broker in ZooKeeper mode. A broker stands for election when it starts",
        )
    say(f"broker {elected.broker_id} is the controller")


def _pass_over_log(directory: Path, *, accept_loss: bool) -> None:
    """
    :raises OperatorError: there is a log, and it has more than ZooKeeper; or it cannot be read, and its loss was not
        accepted.
    """
    if not (directory / DIRECTORY_NAME).is_dir():
        return
    try:
        if last_of_log(directory).offset == 0:
            return
        image = read_image(directory)
    except OperatorError as error:
        if accept_loss:
            return
        raise OperatorError(
            f"this controller has a log that cannot be read: {error.what}",
            where=error.where,
            remedy=f"{error.remedy}. If this log is lost for good, add --accept-loss",
        ) from error
    check_own_log(image, str(directory))


def _newest(settings: Settings, others: tuple[Path, ...]) -> Path:
    """The metadata directory with the newest log. Print the changes that it may lack.

    :raises OperatorError: no log can be used.
    """
    own = settings.metadata_directory
    at_hand = [own] if (own / FILE_NAME).exists() else []
    if not at_hand and not others:
        raise OperatorError(
            "there is no metadata log here",
            where=str(own),
            remedy="Name the metadata directories of other controllers with --log. If the logs of all controllers are "
            "lost, use --without-log",
        )
    logs = logs_in([*at_hand, *others])
    chosen = newest_of(list(logs), *_voters(settings, logs))
    if chosen.doubt:
        say(f"warning: {chosen.doubt}. Name the logs of other controllers with --log", err=True)
    return logs[chosen.newest]


def _all_stopped(running: Controller | None) -> None:
    """:raises OperatorError: a controller of the quorum still listens."""
    if running is not None:
        name, host, port = running
        raise OperatorError(
            f"{name} still runs",
            where=f"{host}:{port}",
            remedy="Stop every controller of the quorum with SIGTERM, the leader last; then repeat the command",
        )


def _all_seen(controllers: Iterable[Controller], gone: Collection[str]) -> None:
    """
    :raises OperatorError: the machine of a controller does not answer, and the operator has not said that it is gone.
    """
    for name, host, port in controllers:
        at, node = f"{host}:{port}", name.rpartition(" ")[2]
        if node in gone or at in gone:
            say(f"{name} at {at}: gone, as you say")
        elif probe(port, host) is None:
            known = node if node.isdecimal() else at
            raise OperatorError(
                f"the machine of {name} does not answer, so this command cannot see whether it runs",
                where=at,
                remedy=f"Run this command where that machine answers. If it is gone for good, add --gone {known}",
            )
        else:
            say(f"{name}: nobody answers at {at}")


def _running(controllers: Iterable[Controller]) -> Controller | None:
    """The first controller that accepts connections."""
    return next((each for each in controllers if port_is_open(each[2], each[1])), None)


def _configured(settings: Settings) -> Iterator[Controller]:
    """The controllers to check: names and addresses of the voters in the file."""
    for voter_id, at in voter_endpoints(settings).items():
        yield f"controller {voter_id}", at.host, at.port


def _bootstrap(settings: Settings) -> Iterator[Controller]:
    """The same for bootstrap servers, whose ids are unknown."""
    for host, port in settings.bootstrap_servers:
        yield "a controller of controller.quorum.bootstrap.servers", host, port


def _in_log(directory: Path, settings: Settings) -> Iterator[Controller]:
    """The same for the voters in a log; none at kraft.version 0."""
    voters, listener = membership_of(directory).voters, settings.controller_listeners[0]
    for voter in () if voters is None else voters.voters:
        for at in voter.endpoints:
            if at.name.upper() == listener:
                yield f"controller {voter.voter_id}", at.host, at.port


def _voters(settings: Settings, logs: Mapping[SeenLog, Path]) -> tuple[Collection[int], str]:
    """The voters' ids, and their source: the newest log, if it has voters, otherwise the configuration."""
    newest = max(logs, key=lambda log: (log.end.epoch, log.end.offset), default=None)
    voters = None if newest is None else membership_of(logs[newest]).voters
    if voters is None:
        return [voter.voter_id for voter in settings.voters], VOTERS_KEY
    return voters.ids, "the voters that the newest log names"
