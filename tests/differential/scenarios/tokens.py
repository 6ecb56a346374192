"""Delegation tokens (APIs 38, 39, 40, 41), directly and through a broker."""

from __future__ import annotations

import datetime as dt
from typing import Any

from tests.differential.support.names import Names
from tests.differential.support.steps import Step, acl, acl_filter, ask, forwarded, labelled

HOUR = dt.timedelta(hours=1)
DAYS_8 = dt.timedelta(days=8)
FOR_EVER = dt.timedelta(days=100_000)
NEVER = dt.timedelta(milliseconds=-1)


def _create(version: int = 3, lifetime: dt.timedelta = NEVER, **fields: Any) -> Step:
    plain = {"owner_principal_type": None, "owner_principal_name": None, "renewers": (), "max_lifetime": lifetime}
    return ask(38, version, **{**plain, **fields})


def _renewer(kind: str, name: str) -> dict[str, str]:
    return {"principal_type": kind, "principal_name": name}


def _renew(number: int, period: dt.timedelta = NEVER, version: int = 2) -> Step:
    """Of the token that was made as number so and so; the last one is -1."""

    def fields(names: Names) -> dict[str, Any]:
        return {"hmac": names.hmacs[number], "renew_period": period}

    return Step(39, version, fields)


def _expire(number: int, period: dt.timedelta = NEVER, version: int = 2) -> Step:
    def fields(names: Names) -> dict[str, Any]:
        return {"hmac": names.hmacs[number], "expiry_time_period": period}

    return Step(40, version, fields)


STEPS = (
    *(_create(version) for version in range(4)),
    *(ask(39, version, hmac=b"x", renew_period=HOUR) for version in range(3)),
    *(ask(40, version, hmac=b"x", expiry_time_period=HOUR) for version in range(3)),
    *(ask(41, version, owners=None) for version in range(4)),
    *(forwarded(_create(version, renewers=(_renewer("User", "bob"),))) for version in range(4)),
    forwarded(_create(lifetime=HOUR)),
    forwarded(_create(lifetime=dt.timedelta(0))),
    forwarded(_create(lifetime=FOR_EVER)),
    forwarded(_create(lifetime=dt.timedelta(milliseconds=-7))),
    forwarded(_create(renewers=(_renewer("Group", "bob"),))),
    forwarded(_create(renewers=(_renewer("User", ""),))),
    forwarded(_create(), token=True),
    forwarded(_create(owner_principal_type="User", owner_principal_name="carol")),
    forwarded(_create(owner_principal_type="User", owner_principal_name="alice")),
    forwarded(_create(owner_principal_type="User", owner_principal_name="")),
    forwarded(_create(owner_principal_type="Group", owner_principal_name="alice")),
    ask(30, 3, creations=(acl(resource_type=7, resource_name="User:carol", principal="User:alice", operation=13),)),
    ask(29, 3, **acl_filter(resource_type_filter=7, resource_name_filter="User:carol")),
    forwarded(_create(owner_principal_type="User", owner_principal_name="carol")),
    forwarded(_create(owner_principal_type="User", owner_principal_name="carol"), "ANONYMOUS"),
    labelled(
        "an owner of a token without a type",
        forwarded(_create(owner_principal_type=None, owner_principal_name="carol"), "ANONYMOUS"),
    ),
    *(forwarded(_renew(0, version=version)) for version in range(3)),
    forwarded(_renew(0), "bob"),
    forwarded(_renew(0), "mallory"),
    forwarded(_renew(0), token=True),
    forwarded(_renew(0, HOUR)),
    forwarded(_renew(0, DAYS_8)),
    forwarded(_renew(4, DAYS_8)),
    forwarded(_renew(0, dt.timedelta(0))),
    forwarded(ask(39, 2, hmac=b"x", renew_period=HOUR)),
    forwarded(ask(39, 2, hmac=b"", renew_period=HOUR)),
    *(forwarded(_expire(1, HOUR, version=version)) for version in range(3)),
    forwarded(_expire(1, HOUR), "bob"),
    forwarded(_expire(1, HOUR), "mallory"),
    forwarded(_expire(1), token=True),
    forwarded(_expire(1, DAYS_8)),
    forwarded(_expire(1, FOR_EVER)),
    forwarded(_expire(1)),
    forwarded(_expire(2, dt.timedelta(milliseconds=-9))),
    forwarded(_expire(3, dt.timedelta(milliseconds=1))),
    forwarded(ask(40, 2, hmac=b"x", expiry_time_period=HOUR)),
)

EXPIRED = (
    forwarded(_expire(-1), "carol"),
    forwarded(_expire(1)),
    forwarded(_renew(1)),
    forwarded(_renew(2)),
    forwarded(_renew(3)),
    forwarded(_expire(3, HOUR)),
    forwarded(_expire(3)),
)
"""Later: stock learns of new and of expired tokens a moment after it has answered."""
