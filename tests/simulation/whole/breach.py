"""A rule is broken."""

from __future__ import annotations


class Violation(Exception):  # noqa: N818 - as in the simulation of the core
    """A rule is broken."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


def check(rule: str, holds: object, what: str) -> None:
    if not holds:
        raise Violation(rule, what)
