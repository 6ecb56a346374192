"""`migrator quorum unregister`: removes the registration of a broker that is gone for good.

It looks at the quorum first and refuses a broker that serves, then sends one request with the login of the property
file. It also works with Kafka's controllers.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from migrator.cli.options import config_option
from migrator.cli.terminal import say
from migrator.config.load import read_properties, typed_settings
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.seeing.quorum import QuorumEyes, QuorumLook


@click.command("unregister")
@config_option("Property file of a controller, or the one that 'access' of an inventory names.", required=True)
@click.option(
    "--id", "broker_id", metavar="BROKER", type=click.IntRange(min=0), required=True, help="The broker that is gone."
)
def command(config: Path, broker_id: int) -> None:
    """Remove the registration of a broker that is gone for good, before, in or after a migration.

    A broker that serves is refused: stop it first. If it is started again, it registers again. The login of FILE needs
    the right Alter on the cluster. Exit codes: 0 the broker is not registered any more, 2 refused or no answer.
    """
    asyncio.run(_unregister(typed_settings(read_properties(config), str(config)), broker_id))


async def _unregister(settings: Settings, broker_id: int) -> None:
    eyes = QuorumEyes(settings)
    try:
        await eyes.catch_up(lambda sentence: say(sentence, err=True))
        if not may_unregister(await eyes.look(), broker_id):
            say(f"broker {broker_id} is not registered: there is nothing to remove")
            return
        why_not = await eyes.unregister(broker_id)
    finally:
        await eyes.close()
    if why_not:
        raise OperatorError(
            f"the registration of broker {broker_id} cannot be removed: {why_not}",
            where="the leader of the quorum",
            remedy="See that a controller leads, and that the login has the right Alter on the cluster",
        )
    say(f"broker {broker_id} is not registered any more")


def may_unregister(look: QuorumLook, broker_id: int) -> bool:
    """Check that there is a registration to remove.

    :raises OperatorError: that is unknown, or the broker serves.
    """
    if look.image is None:
        raise OperatorError(
            "; ".join(look.unknown) or "nothing is committed yet: the quorum knows of no broker",
            where="the quorum",
            remedy="Nothing was changed. See that the controllers run, and that this machine reaches them",
        )
    registration = look.image.cluster.brokers.get(broker_id)
    if registration is not None and not registration.fenced:
        raise OperatorError(
            f"broker {broker_id} serves",
            where=f"broker {broker_id}",
            remedy="Nothing was changed. Stop the broker first, and wait until the quorum misses its heartbeats "
            "(broker.session.timeout.ms)",
        )
    return registration is not None
