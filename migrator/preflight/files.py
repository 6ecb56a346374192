"""Makes evidence of property files, and of the directories that they name on this machine.

`gather` uses one `FileGatherer`; `migrator format` asks `level_and_state`. A file that cannot be read or used is kept
as a fault, and the next one is read. Placeholders are resolved only in a file of this host: in a copy from another host
they would read this host's files. It writes nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from migrator.config.checks import problems_of, warnings_of
from migrator.config.endpoints import parse_voters
from migrator.config.load import read_properties, typed_settings
from migrator.config.open_doors import open_doors
from migrator.config.process_rights import ROOT, changed_by_others, read_by_others
from migrator.config.providers import PLACEHOLDER, PROVIDERS_KEY, refuse_unknown_providers, resolve_placeholders
from migrator.config.reading import log_directories
from migrator.config.sensitive import PASSWORD, is_sensitive, kind_of
from migrator.config.settings import Settings
from migrator.config.types import entries_of, split_list
from migrator.errors import MigratorError, OperatorError
from migrator.log.bootstrap import read_bootstrap
from migrator.log.lock import is_in_use
from migrator.log.meta_properties import read_meta_properties
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.observe.metrics_access import MetricsAccess, access_files
from migrator.preflight.evidence import BrokerFile, ControllerFile, DirectoryFacts, PropertyFile, Trouble, UnknownFact
from migrator.records.metadata import FeatureLevelRecord
from migrator.records.versions import FEATURE_NAME, parse_version
from migrator.verify.kraft.files import EmptyLogError, read_image
from migrator.wire.identity import authentication_of, shown_by
from migrator.wire.listener_settings import broker_security, controller_security
from migrator.zookeeper.session import options_from

T = TypeVar("T")
_DIRECTORIES = {"metadata.log.dir", "log.dir", "log.dirs"}


class FileGatherer:
    """Reads files one after the other, and keeps faults for those that cannot be read or used."""

    def __init__(self) -> None:
        self.unknown: list[UnknownFact] = []
        self.refused: list[Trouble] = []

    def controller(self, path: Path, *, is_of_this_host: bool) -> ControllerFile | None:
        """Read a controller's file. None when nothing can be said about this controller; the reason is kept.

        :param is_of_this_host: whether its placeholders may be resolved here.
        """
        raw = self._read(path)
        if raw is None:
            return None
        file = self._resolved(path, raw) if is_of_this_host else _unresolved(path, raw, check_providers=True)
        if file.get("process.roles") == "broker" or ("broker.id" in raw and not file.sets("process.roles")):
            what, remedy = "it is a broker's file, given as a controller's", "Give brokers' files after --brokers"
            self.unknown.append(UnknownFact(str(path), what, remedy))
            return None
        if "node.id" in file.not_examined:
            trouble = file.hidden["node.id"]
            self.unknown.append(UnknownFact(trouble.where, trouble.what, "Write the number into the file"))
            return None
        try:
            settings = typed_settings({**file.values, **dict(_as_written(file, raw))}, str(path))
        except OperatorError as error:
            self.refused.append(_trouble(error, str(path)))
            return None
        whole = not file.not_examined
        judged = all(is_sensitive(kind_of(key)) for key in file.not_examined)  # no other setting depends on these keys
        return ControllerFile(
            file=file,
            settings=settings,
            problems=tuple(problems_of(settings)) if judged else (),
            warnings=tuple(_or(lambda: warnings_of(settings), list[str]())) if judged else (),
            unreadable=tuple(_unreadable(settings)) if whole else (),
            unusable=tuple(_unusable(settings)) if whole else (),
            voters=_or(lambda: settings.voters, ()),
            protocols=_or(lambda: settings.protocol_map, {}),
            listeners=_or(lambda: settings.parsed_listeners, ()),
            directory=DirectoryFacts("") if file.not_examined & _DIRECTORIES else self._directory(settings),
            open_doors=_or(lambda: tuple(open_doors(settings)), ()) if judged else (),
            shown=_usable(lambda: shown_by(controller_security(settings))) if whole else None,
            authentication=_usable(lambda: authentication_of(controller_security(settings))) if whole else None,
        )

    def broker(self, path: Path) -> BrokerFile | None:
        """Like `controller`, for a broker's file, which may be a copy from another host."""
        raw = self._read(path)
        if raw is None:
            return None
        file = _unresolved(path, raw, check_providers=False)
        if "controller" in file.get("process.roles"):
            what, remedy = (
                "it is a controller's file, given as a broker's",
                "Give each controller's file a -c of its own",
            )
            self.unknown.append(UnknownFact(str(path), what, remedy))
            return None
        directories = [Path(name) for name in log_directories(file.values)]
        identities = []
        for directory in directories:
            try:
                identity = read_meta_properties(directory)
            except OperatorError as error:
                self._cannot_tell(error, str(directory))
                continue
            if identity is not None:
                identities.append((str(directory), identity))
        broker_id = file.number("broker.id")
        return BrokerFile(
            file=file,
            broker_id=None if broker_id is None or broker_id < 0 else broker_id,
            level=_or(lambda: parse_version(file.values["inter.broker.protocol.version"]).level, None),
            voters=_or(lambda: parse_voters(split_list(file.get("controller.quorum.voters"))), None),
            identities=tuple(identities),
            old_logs=tuple(str(it / DIRECTORY_NAME) for it in directories if (it / DIRECTORY_NAME).is_dir()),
        )

    def _read(self, path: Path) -> dict[str, str] | None:
        try:
            return read_properties(path)
        except OperatorError as error:
            self._cannot_tell(error, str(path))
            return None

    def _resolved(self, path: Path, raw: dict[str, str]) -> PropertyFile:
        """The file with its placeholders resolved one by one. One that cannot be resolved is left out, and kept as a
        fault."""
        providers = {key: text for key, text in raw.items() if key.startswith(PROVIDERS_KEY)}
        values: dict[str, str] = {}
        hidden: dict[str, Trouble] = {}
        for key in (key for key in raw if key not in providers):
            where = f"{path}: {key}"
            try:
                values[key] = resolve_placeholders(raw, where, (key,))[key]
            except OperatorError as error:
                if PLACEHOLDER.search(raw[key]) is None:
                    values[key] = raw[key]
                    continue
                remedy = error.remedy or "Make it readable here, or run preflight where it is"
                hidden[key] = Trouble(where, error.what, remedy)
        if not hidden:
            try:
                resolve_placeholders(providers, str(path))
            except OperatorError as error:
                hidden[PROVIDERS_KEY] = _trouble(error, str(path))
        return PropertyFile(str(path), values, hidden)

    def _directory(self, settings: Settings) -> DirectoryFacts:
        directory = _or(lambda: settings.metadata_directory, None)
        if directory is None:
            return DirectoryFacts("")
        standing = next(it for it in (directory, *directory.absolute().parents) if it.exists())
        facts = DirectoryFacts(
            str(directory),
            exists=directory.is_dir(),
            free_bytes=shutil.disk_usage(standing).free,
            writable=os.access(standing, os.W_OK | os.X_OK),
            of_root=directory.is_dir() and directory.stat().st_uid == ROOT,
            changeable=tuple(map(str, changed_by_others(directory))),
            readable=read_by_others(directory),
        )
        try:
            identity = read_meta_properties(directory)
            in_use = directory.is_dir() and is_in_use(directory)
            level, log_state = (None, None) if identity is None else level_and_state(directory)
        except MigratorError as error:
            self._cannot_tell(error, str(directory))
            return facts
        return replace(facts, identity=identity, in_use=in_use, level=level, log_state=log_state)

    def _cannot_tell(self, error: MigratorError, where: str) -> None:
        trouble = _trouble(error, where)
        self.unknown.append(UnknownFact(trouble.where, trouble.what, trouble.remedy))


def _unresolved(path: Path, raw: Mapping[str, str], *, check_providers: bool) -> PropertyFile:
    """A file that may be a copy from another host. Its placeholders are not resolved: a provider would read files of
    this host as the user of preflight, and their content would be in the report.

    :param check_providers: whether this program will have to resolve them.
    """
    names = entries_of(raw.get(PROVIDERS_KEY, ""))
    values = {key: text for key, text in raw.items() if not key.startswith(PROVIDERS_KEY)}
    parts = {key: [it[0] for it in PLACEHOLDER.finditer(text) if it[1] in names] for key, text in values.items()}
    found = {key: ", ".join(some) for key, some in parts.items() if some}
    values = {key: text for key, text in values.items() if key not in found}
    try:
        if check_providers:
            refuse_unknown_providers(raw, str(path))
    except OperatorError as error:
        hidden = {key: Trouble(f"{path}: {key}", error.what, error.remedy) for key in found}
        return PropertyFile(str(path), values, hidden or {PROVIDERS_KEY: _trouble(error, str(path))})
    hidden = {
        key: Trouble(f"{path}: {key}", f"it is {some}: not examined here", "Look at it where it is")
        for key, some in found.items()
    }
    return PropertyFile(str(path), values, hidden, frozenset(hidden))


def _as_written(file: PropertyFile, raw: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The placeholders of keys that are not examined, for secrets and names, whose value may be any text."""
    return ((key, raw[key]) for key in file.not_examined if kind_of(key) in ("string", PASSWORD))


def level_and_state(directory: Path) -> tuple[int | None, str | None]:
    """The metadata.version of a directory (from its format or its log), and the state of its migration."""
    if any((directory / DIRECTORY_NAME).glob("*.log")) and _has_records(directory):
        with suppress(EmptyLogError):
            image = read_image(directory)
            return image.features.levels.get(FEATURE_NAME), image.features.zk_migration_state.name
    for record in read_bootstrap(directory) or ():
        if isinstance(record, FeatureLevelRecord) and record.name == FEATURE_NAME:
            return record.feature_level, None
    return None, None


def _has_records(directory: Path) -> bool:
    log = directory / DIRECTORY_NAME
    return any(path.stat().st_size for path in log.glob("*.log")) or any(log.glob("*.checkpoint"))


def _unreadable(settings: Settings) -> Iterator[Trouble]:
    """The security settings that this program cannot use. It finds them by using them."""
    attempts: list[Callable[[], object]] = [lambda: controller_security(settings)]
    if settings.zookeeper_metadata_migration_enable:
        attempts.append(lambda: broker_security(settings))
    if settings.zookeeper_connect:
        attempts.append(lambda: options_from(settings))
    seen = set()
    for attempt in attempts:
        try:
            attempt()
        except OperatorError as error:
            where = error.where if settings.source in error.where else f"{settings.source}: {error.where}"
            trouble = Trouble(where, error.what, error.remedy)
            if trouble not in seen:
                seen.add(trouble)
                yield trouble
        except (ValueError, LookupError):  # another finding refuses the listeners already
            continue


def _unusable(settings: Settings) -> Iterator[Trouble]:
    """Like `_unreadable`, for the settings of the metrics endpoint."""
    if not settings.migrator_metrics_listener:
        return
    try:
        MetricsAccess(access_files(settings))
    except OperatorError as error:
        yield Trouble(f"{settings.source}: {error.where}", error.what, error.remedy)


def _usable(attempt: Callable[[], T]) -> T | None:
    """The result of an attempt; None when it fails. `_unreadable` has the reason."""
    try:
        return attempt()
    except (OperatorError, ValueError, LookupError):
        return None


def _trouble(error: MigratorError, where: str) -> Trouble:
    if isinstance(error, OperatorError):
        return Trouble(error.where or where, error.what, error.remedy or "Correct the file")
    return Trouble(where, str(error), "Restore it from a copy, or format the directory anew")


def _or(attempt: Callable[[], T], otherwise: T) -> T:
    """A value that depends on several settings, or ``otherwise`` when these contradict each other."""
    try:
        return attempt()
    except (ValueError, LookupError):
        return otherwise
