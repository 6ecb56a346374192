"""`migrator rollback`."""

from __future__ import annotations

from pathlib import Path

import click

from migrator.cli.options import config_option
from migrator.config.load import load_settings
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.migration.give_back import give_back
from migrator.node.migration import password_encoder
from migrator.parts.processes import port_is_open
from migrator.verify.kraft_files import read_image
from migrator.zookeeper.claim import Claimer
from migrator.zookeeper.session import ZooKeeperSession, options_from

_WARNING = (
    "The cluster of {hosts} is given back to its ZooKeeper brokers; they elect a controller among them. "
    "Brokers must be in ZooKeeper mode."
)


@click.command("rollback")
@config_option("Property file of the controller that led last, on this machine.", required=True)
@click.option("--yes", is_flag=True, help="Don't ask.")
def command(config: Path, yes: bool) -> None:
    """Give a cluster back to ZooKeeper, when every controller has been stopped.

    Partition states and the controller epoch are put so that no partition goes offline, then the quorum's claim and
    /migration are deleted. Brokers in KRaft mode are rolled into ZooKeeper mode before, with the migration on; when it
    is done, brokers are rolled once more, without the settings of the migration. Exit codes: 0 done, 2 refused.
    """
    settings, _ = load_settings(config)
    _all_stopped(settings)
    image = read_image(settings.metadata_directory)
    with ZooKeeperSession(options_from(settings)) as session:
        if not yes:
            click.confirm(f"{_WARNING.format(hosts=settings.zookeeper_connect)}\nGo on?", abort=True)
        done = give_back(session, image, password_encoder(settings))
        click.echo(f"partition states raised to their partition epoch: {done.raised_states}")
        if done.raised_epoch is not None:
            click.echo(f"/controller_epoch raised to {done.raised_epoch}")
        claimer = Claimer(session)
        elected = claimer.wait_for_zookeeper_controller()
        if elected is None and claimer.wake_brokers():
            elected = claimer.wait_for_zookeeper_controller()
    if elected is None:
        raise OperatorError(
            "the claim is gone, and no broker has taken the controllership",
            remedy="Restart a broker in ZooKeeper mode: it stands for election at its start",
        )
    click.echo(f"broker {elected.broker_id} is the controller")


def _all_stopped(settings: Settings) -> None:
    """:raises OperatorError: a controller of the quorum still listens."""
    for voter in settings.voters:
        if port_is_open(voter.port, voter.host):
            raise OperatorError(
                f"controller {voter.voter_id} still runs",
                where=f"{voter.host}:{voter.port}",
                remedy="Stop every controller of the quorum with SIGTERM first, the leader last",
            )
