"""The first metadata.version of a controller to format or rehearse: the typed one, or that of the brokers.

`format` and `rehearse` call it before they write anything. A typed version always counts. During a migration the
version has to be that of the brokers, which are asked over the network; `format` refuses when they differ or do not
answer; `rehearse` takes the newest version when they differ.
"""

from __future__ import annotations

from migrator.config.keys import IBP
from migrator.config.settings import Settings
from migrator.controller.activation import bootstrap_level
from migrator.errors import OperatorError
from migrator.log.bootstrap import read_bootstrap
from migrator.preflight.protocol_versions import TYPE_IT, Said, ask_protocol_versions, version_of_brokers
from migrator.records.versions import LATEST_SUPPORTED, MetadataVersion, parse_version, version_at
from migrator.zookeeper.session import ZooKeeperSession, options_from

TYPED = "--release-version"
NEWEST = "the newest that this program has"


def typed_version(text: str | None) -> MetadataVersion | None:
    """The version of ``-r``, if the option is given.

    :raises OperatorError: the text is no version.
    """
    try:
        return None if text is None else parse_version(text)
    except ValueError as error:
        raise OperatorError(str(error), where=TYPED, remedy="Write for example 3.9 or 3.9-IV0") from error


def version_for(
    settings: Settings, typed: MetadataVersion | None, *, joins: bool, is_formatted: bool
) -> tuple[MetadataVersion | None, str]:
    """The version and, unless it was typed, its source; None when none is needed.

    :param joins: whether a quorum exists already: then the version in its log counts.
    :param is_formatted: whether the metadata directory has its version already.
    :raises OperatorError: the version has to come from the brokers, and they do not agree or do not answer.
    """
    if typed is not None or is_formatted:
        return typed, ""
    newest = version_at(LATEST_SUPPORTED)
    if joins:
        return newest, f"{NEWEST}. It only counts if the log of the quorum names none"
    if not settings.zookeeper_metadata_migration_enable:
        return newest, f"{NEWEST}: zookeeper.metadata.migration.enable is not true, so no broker was asked"
    try:
        said = _ask(settings)
    except OperatorError as error:
        remedy = f"Without ZooKeeper, {TYPE_IT}: the {IBP} that all brokers have"
        raise OperatorError(
            f"the brokers cannot be asked for their {IBP}: {error.what}",
            where=error.where,
            remedy=". ".join(filter(None, (error.remedy, remedy))),
        ) from error
    return _of_brokers(said)


def version_to_rehearse(settings: Settings, typed: MetadataVersion | None) -> tuple[MetadataVersion, str]:
    """The version with which `version_for` would format the directory for a migration, and its source.

    When a format would be refused, it is the newest version: the rehearsal names the obstacles to the migration.

    :raises OperatorError: ZooKeeper cannot be reached.
    """
    if typed is not None:
        return typed, TYPED
    directory = settings.metadata_directory
    if first := read_bootstrap(directory):
        return version_at(bootstrap_level(first)), f"that of the formatted directory {directory}"
    said = _ask(settings)
    try:
        return _of_brokers(said)
    except OperatorError as error:
        where = f"{error.where}: " if error.where else ""
        return version_at(LATEST_SUPPORTED), f"{NEWEST}, because the brokers give none: {where}{error.what}"


def _ask(settings: Settings) -> dict[int, Said]:
    with ZooKeeperSession(options_from(settings)) as session:
        return ask_protocol_versions(settings, session)


def _of_brokers(said: dict[int, Said]) -> tuple[MetadataVersion, str]:
    return version_of_brokers(said), f"the {IBP} of {len(said):,} broker{'s' * (len(said) > 1)}"
