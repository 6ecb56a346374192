"""`migrator format`: options as those of Kafka's ``kafka-storage format``, and the checks before a directory is
formatted.

`migrator.log.formatting` does the work. All checks come first: the cluster id against ZooKeeper's, the metadata.version
against the migration, the voters against the configuration. Warnings are printed and do not stop it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import SystemRandom

import click

from migrator.cli.first_version import TYPED, typed_version, version_for
from migrator.cli.options import config_option
from migrator.cli.terminal import say
from migrator.clock import wall_ms
from migrator.config.checks import EVERYWHERE
from migrator.config.endpoints import is_same_host
from migrator.config.load import load_settings
from migrator.config.settings import Settings
from migrator.controller.activation import SAME_AS_BROKERS, bootstrap_level, check_first_level
from migrator.controller.scram import FORM, MECHANISMS, SALT_BYTES, parse_credential
from migrator.errors import OperatorError
from migrator.log.bootstrap import bootstrap_records, read_bootstrap
from migrator.log.formatting import FormatPlan, format_directories
from migrator.log.initial_voters import initial_voter, initial_voters_text, parse_initial_voters
from migrator.log.meta_properties import MetaProperties, read_meta_properties
from migrator.preflight.files import level_and_state
from migrator.raft.voter_set import VoterSet
from migrator.records.control import VoterEndpoint
from migrator.records.metadata import UserScramCredentialRecord
from migrator.records.uuid import random_uuid, uuid_from_text
from migrator.records.versions import LATEST_SUPPORTED, MetadataVersion, MinLevel, version_at
from migrator.zookeeper.clusters import NoClusterError, read_cluster_id
from migrator.zookeeper.session import ZooKeeperSession, options_from
from migrator.zookeeper.znodes import paths

EXAMPLES = """\b
Examples:
  Voters of controller.quorum.voters; the cluster id is ZooKeeper's:
    migrator format -c controller.properties
  The first controller of a quorum that grows later:
    migrator format -c controller.properties -t CLUSTER_ID --standalone
  A controller that joins a quorum:
    migrator format -c controller.properties -t CLUSTER_ID --no-initial-controllers
  Several controllers at once, each with the same list:
    migrator format -c controller.properties -t CLUSTER_ID \\
      --initial-controllers 1@host-1:9093:JEXY6aqzQY-32P5TStzaFg,2@host-2:9093:MvDxzVmcRsaTz33bUuRU6A
"""
SHORT_WITH_EQUALS = re.compile(r"^(-[a-zA-Z])=")
_CHOICES = "--standalone, --initial-controllers or --no-initial-controllers"


class AsKafkaTakesIt(click.Command):
    """Takes ``-t=ID`` for ``-t ID`` as well: Kafka's tool does, and scripts write it so."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See `click.Command.parse_args`."""
        return super().parse_args(ctx, [SHORT_WITH_EQUALS.sub(r"\1", argument) for argument in args])


@click.command("format", cls=AsKafkaTakesIt, epilog=EXAMPLES)
@config_option("The controller's property file.", required=True)
@click.option(
    "-t",
    "--cluster-id",
    default=None,
    metavar="ID",
    help="The cluster id of the brokers. Default: what znode /cluster/id holds, if the file has zookeeper.connect.",
)
@click.option(
    "-r",
    "--release-version",
    default=None,
    metavar="VERSION",
    help="The metadata.version, for example 3.9 or 3.9-IV0. Default: the inter.broker.protocol.version of all "
    "brokers, if the file has the migration on; else 3.9-IV0.",
)
@click.option(
    "-g", "--ignore-formatted", is_flag=True, help="Do nothing to directories that are already formatted for this node."
)
@click.option("-s", "--standalone", is_flag=True, help="This controller is the first voter of a new quorum.")
@click.option(
    "-I",
    "--initial-controllers",
    default=None,
    metavar="LIST",
    help="The first voters of a new quorum, id@host:port:directoryId with commas between. Give each of them this list.",
)
@click.option(
    "-N", "--no-initial-controllers", is_flag=True, help="This controller joins a quorum whose log names the voters."
)
@click.option(
    "-S",
    "--add-scram",
    multiple=True,
    metavar="CREDENTIAL",
    help=f"A credential of the new quorum, {FORM}. Others on this machine can see it while the command runs.",
)
def command(
    config: Path,
    cluster_id: str | None,
    release_version: str | None,
    ignore_formatted: bool,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    add_scram: tuple[str, ...],
) -> None:
    """Prepare the directories of a new controller, as kafka-storage format does.

    If the file has zookeeper.connect, the command compares the cluster id with ZooKeeper's. If the file has
    zookeeper.metadata.migration.enable=true, a metadata.version below 3.6-IV1 is refused; without -r the command asks
    each broker that is registered in ZooKeeper for its inter.broker.protocol.version, and takes that. Exit codes: 0
    formatted, 2 refused.
    """
    settings, warnings = load_settings(config)
    directory = settings.metadata_directory
    existing = read_meta_properties(directory) if directory.is_dir() else None
    typed = typed_version(release_version)
    if settings.zookeeper_metadata_migration_enable:
        _check_migration(directory, typed, is_kept=ignore_formatted and existing is not None)
    voters = _voters(
        settings, standalone=standalone, listed=initial_controllers, no_initial_controllers=no_initial_controllers
    )
    cluster, said_by, not_compared = cluster_id_of(
        settings, cluster_id, kept=existing if ignore_formatted else None, directory=directory
    )
    version, version_from = version_for(
        settings, typed, joins=no_initial_controllers, is_formatted=existing is not None
    )
    plan = FormatPlan(
        directories=settings.log_directories,
        metadata_directory=directory,
        cluster_id=cluster,
        cluster_id_of=said_by,
        node_id=settings.node_id,
        version=version or version_at(LATEST_SUPPORTED),
        ignore_formatted=ignore_formatted,
        voters=voters,
        credentials=tuple(map(_credential, add_scram)),
        version_of=version_from or TYPED,
        migrates=settings.zookeeper_metadata_migration_enable,
    )
    formatted = format_directories(plan, random=SystemRandom(), now_ms=wall_ms())
    with_version = "" if version is None else f" with metadata.version {version.name}"
    # Only now: after a refusal the operator should read just the error.
    own = _warning_of_address(settings) if standalone else _warning_of_own_entry(settings, voters)
    for warning in (*warnings, *own, *_warnings_of_doubled(plan.credentials), *not_compared):
        say(f"migrator: warning: {warning}", err=True)
    if cluster_id is None:
        say(f"The cluster id is {cluster}, from {said_by}")
    if version is not None and version_from and formatted:
        say(f"The metadata.version is {version.name}, {version_from}")
    for each in formatted:
        say(f"Formatted {each} for node {settings.node_id}{with_version}")
    if not formatted:
        say("All of the log directories are already formatted")
    elif plan.voters is not None and directory in formatted:
        say(f"The first voters are {initial_voters_text(plan.voters)}")
        if settings.node_id not in plan.voters.ids:
            say(f"migrator: warning: node {settings.node_id} is not among them and will not vote", err=True)
    if no_initial_controllers and settings.voters:
        say(
            f"migrator: warning: {settings.source}: controller.quorum.voters is set. With an empty log this controller "
            "votes by that key, and a majority of such controllers elects a leader without any log. Remove the key and "
            "set controller.quorum.bootstrap.servers before you start it",
            err=True,
        )


def _credential(text: str) -> UserScramCredentialRecord:
    try:
        return parse_credential(text, SystemRandom().randbytes(SALT_BYTES))
    except ValueError as error:
        raise OperatorError(str(error), where="--add-scram", remedy=f"Write {FORM}") from error


def _voters(
    settings: Settings, *, standalone: bool, listed: str | None, no_initial_controllers: bool
) -> VoterSet | None:
    """The first voters, None when the configuration or an existing log names them.

    :raises OperatorError: the options contradict each other or the configuration.
    """
    where = f"{settings.source}: controller.quorum.voters"
    given = [standalone, listed is not None, no_initial_controllers].count(True)
    if given > 1:
        raise OperatorError(
            "only one of these options can be given", where=_CHOICES, remedy="Give one of these options"
        )
    if (standalone or listed is not None) and settings.voters:
        raise OperatorError(
            "the key is set, so the voters are those of the configuration",
            where=where,
            remedy="Remove the key and set controller.quorum.bootstrap.servers; or format without --standalone and "
            "--initial-controllers",
        )
    if not given and not settings.voters:
        raise OperatorError(
            "the key is not set, so an option has to name the voters", where=where, remedy=f"Give one of {_CHOICES}"
        )
    if standalone:
        return VoterSet.of([initial_voter(settings.node_id, random_uuid(SystemRandom()), _own_endpoint(settings))])
    if listed is None:
        return None
    try:
        return parse_initial_voters(listed, settings.controller_listeners[0])
    except ValueError as error:
        raise OperatorError(
            str(error),
            where="--initial-controllers",
            remedy="Write id@host:port:directoryId of each controller, with commas between",
        ) from error


def _own_endpoint(settings: Settings) -> VoterEndpoint:
    """The address of this controller for the others; without a host it is localhost, as in Kafka."""
    own = settings.advertised_controller_listeners[0]
    if not own.port or own.host in ("0.0.0.0", "::"):  # noqa: S104 (refused)
        raise OperatorError(
            f"listener {own.name} has no address that other controllers could connect to",
            where=f"{settings.source}: advertised.listeners",
            remedy=f"Set {own.name}://host:port",
        )
    return VoterEndpoint(own.name, own.host or "localhost", own.port)


def _warning_of_address(settings: Settings) -> tuple[str, ...]:
    own = settings.advertised_controller_listeners[0]
    if own.host:
        return ()
    what = f"{own.name} has no host, so other controllers will look for this one on localhost"
    remedy = "If others are to join, set a host, empty the directory, and format it again"
    return (f"{settings.source}: advertised.listeners: {what}. {remedy}",)


def _warning_of_own_entry(settings: Settings, voters: VoterSet | None) -> Iterator[str]:
    """The warning that this node's address differs from the one in the list of first voters."""
    own = settings.advertised_controller_listeners[0]
    listed = [voter.endpoints[0] for voter in voters.voters if voter.voter_id == settings.node_id] if voters else []
    for it in listed:
        if it.port == own.port and (own.host in EVERYWHERE or is_same_host(it.host, own.host)):
            continue
        yield (
            f"--initial-controllers: others will look for node {settings.node_id} at {it.host}:{it.port}, and "
            f"{settings.source} has {own.name} at {own.host}:{own.port} (advertised.listeners, else listeners). If the "
            "list is wrong, correct it, empty the directories of all its controllers, and format them again"
        )


def _warnings_of_doubled(credentials: tuple[UserScramCredentialRecord, ...]) -> Iterator[str]:
    """The warnings about credentials that are given twice: Kafka's tool takes the last one silently."""
    count = Counter((it.name, it.mechanism) for it in credentials)
    for (name, mechanism), number in count.items():
        if number > 1:
            text = next(text for text, known in MECHANISMS.items() if known == mechanism)
            yield f"--add-scram: {text} of {name} is given {number} times: the last one counts, as with Kafka's tool"


def _check_migration(directory: Path, version: MetadataVersion | None, *, is_kept: bool) -> None:
    """Check, before anything is formatted, that a migration can begin in this directory.

    :param version: the version that was typed.
    :param is_kept: whether the directory stays as it was formatted.
    :raises OperatorError: the typed metadata.version, or that of the directory, is too low.
    """
    if version is not None:
        check_first_level(version.level, where=TYPED, remedy=f"Format the directory {SAME_AS_BROKERS}")
    if not is_kept:
        return
    first = bootstrap_level(read_bootstrap(directory) or bootstrap_records(version_at(LATEST_SUPPORTED)))
    if first < MinLevel.TRANSACTIONS:
        level, _ = level_and_state(directory)  # reads the whole log
        check_first_level(first if level is None else level, where=f"{directory} (formatted earlier)")


CLUSTER_ID_OPTION = "--cluster-id"
CONNECT_MS = 3_000
"""How long to look for ZooKeeper when the id was typed: scripts also format machines that cannot reach it yet."""


def cluster_id_of(
    settings: Settings, typed: str | None, *, kept: MetaProperties | None, directory: Path
) -> tuple[str, str, tuple[str, ...]]:
    """The id, its source, and warnings.

    :param kept: the id of the metadata directory, if it stays as it was formatted. Then ZooKeeper need not answer.
    :raises OperatorError: there is no id, or ZooKeeper has another one.
    """
    if not settings.zookeeper_connect:
        if typed is None:
            raise OperatorError(
                f"no cluster id is given, and {settings.source} names no ZooKeeper to ask",
                where=CLUSTER_ID_OPTION,
                remedy="Give -t with the cluster.id in meta.properties of a broker, or set zookeeper.connect",
            )
        return typed, CLUSTER_ID_OPTION, _doubted(typed)
    try:
        found = _in_zookeeper(settings, patient=typed is None and kept is None)
    except OperatorError as error:
        known, said_by = (
            (kept.cluster_id, str(directory)) if typed is None and kept is not None else (typed, CLUSTER_ID_OPTION)
        )
        if known is None or (isinstance(error, NoClusterError) and error.chroots):
            raise
        return known, said_by, (f"cluster id {known} is not compared with ZooKeeper: {error}",)
    source = f"{paths.CLUSTER_ID} of ZooKeeper at {settings.zookeeper_connect}"
    if typed not in (None, found):
        raise OperatorError(
            f"{typed} was typed, and {source} is {found}",
            where=CLUSTER_ID_OPTION,
            remedy=f"Nothing was formatted. Leave -t away, or correct zookeeper.connect in {settings.source}",
        )
    return found, source, ()


def _doubted(typed: str) -> tuple[str, ...]:
    try:
        uuid_from_text(typed)
    except ValueError:
        return (f"cluster id {typed!r} does not look like one that Kafka has made: see that all brokers have it",)
    return ()


def _in_zookeeper(settings: Settings, *, patient: bool) -> str:
    options = options_from(settings)
    if not patient:
        options = replace(options, connection_timeout_ms=min(options.connection_timeout_ms, CONNECT_MS))
    with ZooKeeperSession(options) as session:
        return read_cluster_id(session)
