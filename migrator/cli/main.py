"""The `migrator` command: finds its subcommands by name and turns errors into exit codes.

The console script calls `main`. A subcommand's module is imported only when it runs, because Spark and gRPC take
seconds. Commands end with 0, 1, 2, 70 or 130 (see `migrator`); `controller` and `top` have more codes. An error has one
sentence on stderr and, with ``--json``, an object on stdout.
"""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from migrator.cli import defects
from migrator.cli.interrupted import INTERRUPTED, what_is_left
from migrator.cli.terminal import (
    is_of_output,
    is_pacified,
    refused_output,
    say_error,
    say_json,
    without_reader,
)
from migrator.errors import OR_THE_IMAGE, ExitCode, InvariantViolation, MigratorError, OperatorError, error_json
from migrator.observe.logs import set_up_command_logging
from migrator.observe.printable import printable_lines

C = "-c controller.properties"
INVENTORY = "-i inventory.yaml"
EXAMPLES: dict[str, tuple[str, ...]] = {
    "preflight": (
        f"migrator preflight {C} --zookeeper zk1:2181/kafka --brokers server.properties",
        f"migrator preflight {C} --zookeeper zk1:2181/kafka --json",
    ),
    "repair": (f"migrator repair partition-states {C} --dry-run",),
    "repair partition-states": (
        f"migrator repair partition-states {C} --dry-run",
        f"migrator repair partition-states {C}",
    ),
    "controller": (f"migrator controller {C}", f"migrator controller {C} --bootstrap"),
    "status": (
        f"migrator status {C}",
        f"migrator status {C} --watch",
        f"migrator status {C} --json",
        "migrator status --server host1:9095 --command-config operator.properties",
    ),
    "top": (f"migrator top {C}", f"migrator top {C} --once --picture top.svg"),
    "pause": (f"migrator pause {C} --reason 'broker 3 is not ready'",),
    "resume": (f"migrator resume {C}",),
    "force": (
        f"migrator force reclaim {C} --reason 'the quorum lost its disks, CHG-42'",
        f"migrator force reconcile {C} --reason 'somebody wrote to ZooKeeper by hand'",
        f"migrator force finish {C} --without 3002 --reason 'the machine of controller 3002 is lost, CHG-43'",
    ),
    "gates": (f"migrator gates finish {C}", f"migrator gates rollback {C}", f"migrator gates reopen {C}"),
    "close-way-back": (f"migrator close-way-back {C} --reason 'client metrics are wanted, CHG-45'",),
    "reopen": (f"migrator reopen {C} --reason 'the auditors want ZooKeeper back, CHG-44'",),
    "rollback": (
        f"migrator rollback {C}",
        f"migrator rollback {C} --log /backup/metadata-of-controller-2",
        f"migrator rollback {C} --without-log",
    ),
    "rehearse": (
        f"migrator rehearse --zookeeper zk1:2181/kafka {C}",
        "migrator rehearse --zookeeper zk1:2181/kafka --out rehearsal --broker-seconds 90",
    ),
    "verify": (
        "migrator verify --zookeeper zk1:2181/kafka --metadata /var/lib/kafka/metadata",
        f"migrator verify --zookeeper zk1:2181/kafka {C} --page proof.html",
    ),
    "ask": (
        "migrator ask offline-in-roll --metadata /var/lib/kafka/metadata",
        "migrator ask changed --metadata /var/lib/kafka/metadata --zookeeper zk1:2181/kafka --from 1200 --csv",
        "migrator ask --sql 'SELECT kind, count(*) FROM kraft GROUP BY kind' --metadata /var/lib/kafka/metadata",
    ),
    "rollout": (f"migrator rollout plan {INVENTORY}", f"migrator rollout apply {INVENTORY} --until DualWrite"),
    "rollout plan": (f"migrator rollout plan {INVENTORY}", f"migrator rollout plan {INVENTORY} --back"),
    "rollout apply": (
        f"migrator rollout apply {INVENTORY} --until DualWrite",
        f"migrator rollout apply {INVENTORY} --canary broker-3",
        f"migrator rollout apply {INVENTORY} --pause-after kraft/broker-1",
    ),
    "rollout resume": (
        f"migrator rollout resume {INVENTORY}",
        f"migrator rollout resume {INVENTORY} --until Finished --yes",
    ),
    "rollout rollback": (f"migrator rollout rollback {INVENTORY}",),
    "rollout status": (f"migrator rollout status {INVENTORY}", f"migrator rollout status {INVENTORY} --json"),
    "rollout history": (f"migrator rollout history {INVENTORY}",),
    "rollout report": (
        f"migrator rollout report {INVENTORY}",
        f"migrator rollout report {INVENTORY} --before --page plan.html",
    ),
    "rollout abort": (f"migrator rollout abort {INVENTORY}",),
    "rollout unlock": (f"migrator rollout unlock {INVENTORY}",),
    "rollout remove-znodes": (f"migrator rollout remove-znodes {INVENTORY}",),
    "rollout schema": ("migrator rollout schema > inventory.schema.json",),
    "handover": (f"migrator handover check {C}", f"migrator handover run {C}"),
    "handover check": (
        f"migrator handover check {C}",
        f"migrator handover check --way members --voters 4,5,6 {C}",
    ),
    "handover run": (
        f"migrator handover run {C}",
        f"migrator handover run --way members --voters 4,5,6 {C}",
    ),
    "quorum": (f"migrator quorum describe {C}", f"migrator quorum reassign {C} --to 4,5,6 --wait"),
    "quorum describe": (f"migrator quorum describe {C}", f"migrator quorum describe {C} --watch"),
    "quorum reassign": (f"migrator quorum reassign {C} --to 4,5,6 --wait",),
    "quorum add": (f"migrator quorum add 4 {C}",),
    "quorum remove": (f"migrator quorum remove 2 {C}",),
    "quorum cancel": (f"migrator quorum cancel {C}",),
    "quorum upgrade": (f"migrator quorum upgrade {C}",),
    "quorum rollout-lock": (f"migrator quorum rollout-lock {C}",),
    "quorum unregister": (f"migrator quorum unregister {C} --id 4",),
    "quorum recover": (
        f"migrator quorum recover {C}",
        f"migrator quorum recover {C} --lost 2@DIRECTORY-ID --lost 3@DIRECTORY-ID --force",
    ),
    "log": ("migrator log dump /var/lib/kafka/metadata/__cluster_metadata-0/00000000000000000000.log",),
    "log dump": (
        "migrator log dump /var/lib/kafka/metadata/__cluster_metadata-0/00000000000000000000.log",
        "migrator log dump --json 00000000000000000042-0000000003.checkpoint",
    ),
    "drill": ("migrator drill", "migrator drill --kafka none --rollback-at dualwrite"),
    "man": ("migrator man > ~/.local/share/man/man1/migrator.1", "migrator man | man -l -"),
    "completion": (
        "migrator completion bash > ~/.local/share/bash-completion/completions/migrator",
        "migrator completion zsh > ~/.zfunc/_migrator",
        "migrator completion fish > ~/.config/fish/completions/migrator.fish",
    ),
}
"""Examples by the words of the command. Commands with their own epilog are not here."""


def add_examples(name: str, command: click.Command) -> None:
    """Add examples to the help of a command and of its subcommands."""
    lines = EXAMPLES.get(name)
    if lines and not command.epilog:
        command.epilog = "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
    if isinstance(command, click.Group):
        for part, found in command.commands.items():
            add_examples(f"{name} {part}", found)


COMMANDS = {
    "preflight": "Find what would make a migration fail, before the migration begins.",
    "repair": "Restore partition states that ZooKeeper has lost, before a migration.",
    "format": "Prepare the metadata directory of a new controller.",
    "controller": "Run one controller of the quorum.",
    "status": "Show the state of the quorum and of the migration, what they wait for, and what to do.",
    "top": "Watch the migration on one screen: state, quorum, brokers, speed, and what it waits for.",
    "pause": "Pause the migration before it writes to ZooKeeper.",
    "resume": "Continue a paused migration.",
    "force": "Order the active controller to override a safety stop.",
    "gates": "List what still prevents the end of the migration, a rollback, or a reopening.",
    "close-way-back": "Let the controllers accept, after the end, what ZooKeeper mode does not have.",
    "reopen": "Let a finished migration go on, so that the ways back to ZooKeeper are open again.",
    "rollback": "Return a cluster to its ZooKeeper brokers.",
    "rehearse": "Try the copy without writing to ZooKeeper, and forecast how long the migration takes.",
    "verify": "Compare ZooKeeper with the metadata log, and prove that both hold the same metadata.",
    "ask": "Ask questions about the metadata of a cluster and its history, in SQL.",
    "rollout": "Migrate a cluster step by step from one inventory; stop anywhere, go on, or go back.",
    "handover": "Hand a finished quorum over to Apache Kafka's own controllers.",
    "quorum": "Show the voters of the quorum, and let others vote instead of them, while the quorum runs.",
    "log": "Print metadata logs and snapshots.",
    "drill": "Migrate a throw-away cluster on this machine and watch it.",
    "man": "Print the manual page.",
    "completion": "Print what a shell needs to complete commands and options.",
}
"""Name -> one line of help. Each command is the object of that name in the module of that name, imported only when it
is needed: Spark and gRPC take seconds."""


CONTROLLER = ["controller"]
"""The exit code of this command says whether ZooKeeper holds everything, also after errors since its start."""
BROKEN_PIPE = 128 + signal.SIGPIPE
"""Exit code of a command whose output is no longer read, as in shells."""
EXTRAS = {"jinja2": "verify", "pandas": "verify", "py4j": "verify", "pyarrow": "verify", "pyspark": "verify"} | {
    "confluent_kafka": "drill"
}
"""Modules that only one command needs, and the extra of the package (pyproject.toml) that has them."""


class LazyGroup(click.Group):
    """A group that imports a command's module only to run it or to print its help."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:  # click compares with the names of imported commands only
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Click would take every broken pipe for that of the output, and every end of a file for an
        interrupted question."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, EOFError) as error:
            if isinstance(error, OSError) and is_of_output(error):
                raise
            defects.end_with(error)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"migrator.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        add_examples(cmd_name, command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name, help=line) for name, line in COMMANDS.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="kraft-migrator", prog_name="migrator")
def migrator() -> None:
    """Move an Apache Kafka cluster from ZooKeeper to KRaft.

    Exit codes: 0 done, or the answer is yes; 1 the answer is no (different, not ready); 2 refused or failed: the
    message says why, and what to do; 70 a defect of this program; 130 interrupted with Ctrl-C.
    """


def _end(text: str, content: Mapping[str, Any], exit_code: int) -> NoReturn:
    """End a command that did not do its work, with a sentence on standard error and, with ``--json``, an object on
    standard output.

    :param text: empty if the operator has seen it already.
    """
    if text:
        with without_reader(err=True):
            say_error(text)
    if "--json" in sys.argv[1:]:
        with without_reader():
            say_json(content)
    sys.exit(exit_code)


def _end_without_output(error: OSError) -> NoReturn:
    """Print one line. After a broken pipe of the output, a command ends silently."""
    if not isinstance(error, BrokenPipeError):
        refused = OperatorError(
            f"the output cannot be written: {error.strerror or error}",
            where="standard output",
            remedy="Make room on the disk, or send the output somewhere else; then run the command again",
        )
        with suppress(OSError):
            say_error(f"migrator: {refused}")
        sys.exit(ExitCode.REFUSED)
    sys.exit(BROKEN_PIPE)


def main() -> None:
    """Entry point of the console script."""
    unheard = defects.UnawaitedErrors()
    try:
        with unheard.listening():
            _run()
    except SystemExit as ended:
        _end_as_ended(ended, unheard.first)
    except OSError as error:
        refused = refused_output()
        if refused is None and not is_of_output(error):
            defects.end_with(error)
        _end_without_output(refused or error)
    except KeyboardInterrupt:  # a second Ctrl-C
        sys.exit(INTERRUPTED)
    except BaseException as error:  # noqa: BLE001 - the top of the process
        defects.end_with(error)


def _end_as_ended(ended: SystemExit, unheard: BaseException | None) -> NoReturn:
    """End with the exit code of the command, if all its output is written and no task has failed.

    :param unheard: a defect in a task that the command did not await.
    """
    cause = ended.__context__
    by_rich = isinstance(cause, BrokenPipeError) and ended.code == 1 and is_of_output(cause)
    unread = is_pacified() or by_rich
    if (refused := refused_output()) is not None:
        _end_without_output(refused)
    if unread:
        sys.exit(BROKEN_PIPE)
    if unheard is not None and ended.code in (None, ExitCode.OK, ExitCode.DIFFERENT) and sys.argv[1:2] != CONTROLLER:
        defects.end_with(unheard)
    raise ended


def _refuse_without_directory() -> None:
    """Refuse to run without a working directory, because paths of command lines and property files may be relative.

    :raises OperatorError: the working directory was deleted, for example replaced by a new release.
    """
    try:
        Path.cwd()
    except OSError as error:
        raise OperatorError(
            f"the working directory cannot be used: {error.strerror or error}",
            where="the shell that started the command",
            remedy="Change to a directory that is there, and run the command again",
        ) from error


def _run() -> NoReturn:
    set_up_command_logging()
    try:
        _refuse_without_directory()
        ended = migrator(standalone_mode=False)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        remedy = (
            f"Install the wheel of migrator again with this extra: pip install 'WHEEL[{extra}]', where WHEEL is the "
            f"path of the wheel; or, from your package index, pip install 'kraft-migrator[{extra}]'. {OR_THE_IMAGE}"
        )
        missing = OperatorError(
            f"the command needs the packages of the extra [{extra}], which are not installed (not found: {error.name})",
            where=f"the Python environment {sys.prefix}",
            remedy=remedy,
        )
        _end(f"migrator: {missing}", missing.as_json(), missing.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        left = what_is_left(sys.argv[1:])
        _end(f"Interrupted. {left}", error_json("interrupted", "", left, INTERRUPTED), INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:  # a group without a subcommand: its help is the message
        error.show()
        _end(
            "",
            error_json("a subcommand is missing", "the command line", "See --help", ExitCode.REFUSED),
            ExitCode.REFUSED,
        )
    except click.ClickException as error:
        words = printable_lines(error.format_message().replace("\n\t", " "))
        click.UsageError(words, getattr(error, "ctx", None)).show()
        _end("", error_json(words, "the command line", "See --help", ExitCode.REFUSED), ExitCode.REFUSED)
    except OperatorError as error:
        _end(f"migrator: {error}", error.as_json(), error.exit_code)
    except InvariantViolation as error:
        defects.end_with(error)
    except MigratorError as error:
        words = f"{type(error).__name__}: {error}"
        _end(f"migrator: {words}", error_json(words, "", "", ExitCode.REFUSED), ExitCode.REFUSED)
    sys.exit(ended if isinstance(ended, int) else ExitCode.OK)  # click returns the code of its `Exit`
