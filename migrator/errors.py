"""The three ways in which something can go wrong, told apart by who has to act.

* `OperatorError`: a person has to act. It has the fault, its place and the remedy, and becomes an exit code.
* `PeerError`: the other side of a connection broke the protocol. That connection is dropped.
* `InvariantViolation`: this process is wrong about the world. It stops before it does harm.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from migrator.looked_up import without_looked_up

OR_THE_IMAGE: Final = (
    "Where the program runs in the image 'controller', use the image 'tools' instead, which has everything"
)
"""Ends a remedy that says which package to install: that image has no pip, and its user may not install."""


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    DIFFERENT = 1
    """The command did its work, and the answer is no: not equal, not ready, a check failed."""
    REFUSED = 2
    """The command could not or would not do its work; the message says why."""
    NOT_DRAINED = 3
    """A controller stopped as ordered, but ZooKeeper does not hold everything that the metadata log holds."""
    DEFECT = 70
    """This program is wrong somewhere: nobody expected the error (``EX_SOFTWARE`` of sysexits.h)."""
    TRY_AGAIN = 75
    """Like `REFUSED`, but the reason may be outdated: a service starts the controller again (``EX_TEMPFAIL`` of
    sysexits.h)."""


class MigratorError(Exception):
    """Base of every error that this package raises on purpose."""


class OperatorError(MigratorError):
    """Something that only a person can mend.

    :param what: one sentence, without a final full stop.
    :param where: file, key, znode or node that it is about.
    :param remedy: what to do about it.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "", exit_code: int = ExitCode.REFUSED) -> None:
        what = without_looked_up(what)
        super().__init__(what)
        self.what = what
        self.where = without_looked_up(where)
        self.remedy = without_looked_up(remedy)
        self.exit_code = exit_code

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f". {self.remedy}" if self.remedy else ""
        return f"{place}{self.what}{advice}"

    def as_json(self) -> dict[str, Any]:
        """The JSON value for scripts: ``{"error": {"what", "where", "remedy", "exit_code"}}``."""
        return error_json(self.what, self.where, self.remedy, self.exit_code)


def error_json(what: str, where: str, remedy: str, exit_code: int) -> dict[str, Any]:
    """Why a command did not do its work, as scripts read it."""
    said = {"what": what, "where": where, "remedy": remedy}
    return {"error": {**{name: without_looked_up(text) for name, text in said.items()}, "exit_code": int(exit_code)}}


class PeerError(MigratorError):
    """The other side of a connection broke the protocol: drop that connection, nothing else."""


class InvariantViolation(MigratorError):
    """A property that must always hold does not. The process has to stop before it does harm."""


def require(condition: bool, message: str) -> None:
    """Check an invariant; unlike `assert` it stays under ``python -O``.

    :raises InvariantViolation: when ``condition`` is false.
    """
    if not condition:
        raise InvariantViolation(message)
