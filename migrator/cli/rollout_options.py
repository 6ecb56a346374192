"""Options that several commands of `migrator rollout` share.

A decorator adds options and gives the function checked values. An empty value, as from an unset variable of a script,
is refused: it would mean another thing than the operator believes.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from migrator.cli.options import Command
from migrator.errors import OperatorError
from migrator.observe.printable import printable
from migrator.rollout.site import Site, site_of
from migrator.values import value

TYPED_MAX = 500


def inventory_option(function: Command) -> Command:
    return click.option(
        "-i",
        "--inventory",
        metavar="FILE",
        required=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The inventory of the rollout.",
    )(function)


def not_empty(_: click.Context, parameter: click.Parameter, given: str | None) -> str:
    """Refuse an empty value, which comes from an unset variable of a script.

    :raises OperatorError: the option is given, and empty.
    """
    if given is not None and not given.strip():
        remedy = "Give it a value, or leave the option out"
        raise OperatorError("the option is empty", where=parameter.opts[0], remedy=remedy)
    return given or ""


def none_empty(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Like `not_empty`, for an option that may be repeated."""
    return tuple(not_empty(context, parameter, each) for each in given)


@value
class Named:
    """Nodes that the operator calls ``gone`` for good, with a reason, or ``back``."""

    gone: tuple[str, ...]
    back: tuple[str, ...]
    reason: str


def nodes_options(function: Callable[..., None]) -> Callable[..., None]:
    """Options for nodes that are gone for good, or back; the function gets them as ``named``."""

    @wraps(function)
    def called(*, gone: tuple[str, ...], back: tuple[str, ...], reason: str, **others: Any) -> None:
        function(named=Named(gone, back, reason), **others)

    called = click.option(
        "--with-node",
        "back",
        metavar="NODE",
        multiple=True,
        callback=none_empty,
        help="Name or id of a node that was left out, and is there again: do what it has missed. Repeatable.",
    )(called)
    called = click.option(
        "--reason",
        metavar="TEXT",
        callback=not_empty,
        help="Why --without-node is right. The journal keeps the reason.",
    )(called)
    return click.option(
        "--without-node",
        "gone",
        metavar="NODE",
        multiple=True,
        callback=none_empty,
        help="Name or id of a broker or controller that is gone for good: go on without it, to the end. Repeatable.",
    )(called)


def stop_options(function: Command) -> Command:
    """Options that end a run before the end of its plan."""
    function = click.option(
        "--pause-after", metavar="STEP", callback=not_empty, help="Stop after this step; 'plan' lists the steps."
    )(function)
    function = click.option(
        "--until",
        metavar="STATE",
        callback=not_empty,
        help="Stop when this state is reached: MigrationIneligible, DualWrite or Finished; or behind the last step of "
        "this phase of the plan.",
    )(function)
    return click.option("--yes", is_flag=True, help="Don't ask, not even before the end of the migration.")(function)


def named_site(inventory: Path, named: Named) -> Site:
    """
    :raises OperatorError: nodes are left out without a reason, or a reason is given without nodes; or as `site_of`.
    """
    if named.gone and not named.reason:
        raise OperatorError(
            "the option needs a reason", where="--without-node", remedy="Give --reason TEXT: the journal keeps it"
        )
    if named.reason and not named.gone:
        raise OperatorError(
            "a reason belongs to --without-node",
            where="--reason",
            remedy="Name the node that is gone for good, or leave the reason out",
        )
    return site_of(inventory, named.gone, named.back)


def typed(context: click.Context) -> str:
    """The command as the operator typed it, without the inventory, for the journal."""
    words = [context.info_name or ""]
    for option in context.command.params:
        name = option.name or ""
        if name == "inventory" or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        given = context.params[name] if getattr(option, "multiple", False) else [context.params[name]]
        for each in given:
            words += [option.opts[0]] if getattr(option, "is_flag", False) else [option.opts[0], str(each)]
    return printable(shlex.join(words))[:TYPED_MAX]
