"""Tokens without a signature: Kafka's unsecured JSON Web Signatures (KIP-255), for development only.

`sasl_settings` chooses it only when the property file names no address of keys. Form and times of a token are checked,
but nothing proves who made it: anybody can log in as any user. Source: Kafka's
``OAuthBearerUnsecuredValidatorCallbackHandler``, ``OAuthBearerUnsecuredLoginCallbackHandler``.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from migrator.clock import wall_seconds
from migrator.values import value
from migrator.wire.sasl.exchange import Authenticated
from migrator.wire.sasl.oauthbearer import TokenError, bearer_principal

RESERVED = ("iat", "exp")
MAX_SECONDS = 2**43
"""A time beyond any calendar. A later time counts as this one."""


@value
class UnsecuredRules:
    """The values of ``unsecuredValidator...`` options. ``clock_skew_ms``: the allowed difference of clocks."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0


class UnsecuredValidator:
    """A `TokenValidator` that accepts every well-formed token."""

    def __init__(self, rules: UnsecuredRules, wall: Callable[[], float] = wall_seconds) -> None:
        self._rules = rules
        self._wall = wall

    def prepare(self) -> None:
        """See `TokenValidator`."""

    def validate(self, token: str) -> Authenticated:
        """See `TokenValidator`."""
        rules, now, skew = self._rules, self._wall(), self._rules.clock_skew_ms / 1000
        claims = _claims(token)
        name = claims.get(rules.principal_claim)
        if not isinstance(name, str) or not name.strip():
            raise TokenError(f"the token has no claim {rules.principal_claim}")
        issued, expires = seconds(claims, "iat"), seconds(claims, "exp")
        if expires is None:
            raise TokenError("the token has no claim exp")
        if issued is not None and (issued > now + skew or expires <= issued):
            raise TokenError("the token is issued in the future, or after its end")
        if now - skew >= expires:
            raise TokenError("the token has expired")
        scope = _scope(claims.get(rules.scope_claim))
        if missing := [part for part in rules.required_scope if part not in scope]:
            raise TokenError(f"the token lacks scope {missing[0]}", f"[{', '.join(rules.required_scope)}]")
        return Authenticated(bearer_principal(name), round(expires * 1000))


def unsecured_token(options: Mapping[str, str], now: float) -> tuple[str, float]:
    """The token that ``unsecuredLogin...`` options describe, and its end in seconds since 1970.

    :raises ValueError: the options make no token.
    """
    lifetime = int(options.get("unsecuredLoginLifetimeSeconds", "3600"))
    claims: dict[str, Any] = {"exp": now + lifetime, "iat": now}
    for option, text in options.items():
        for prefix, read in _CLAIMS.items():
            if option.startswith(prefix) and (name := option[len(prefix) :]):
                if name in RESERVED:
                    raise ValueError(f"claim {name} cannot be set")
                claims[name] = read(text)
    principal = options.get("unsecuredLoginPrincipalClaimName", "").strip() or "sub"
    owner = claims.get(principal)
    if not isinstance(owner, str) or not owner.strip():
        raise ValueError(f"unsecuredLoginStringClaim_{principal} is missing")
    parts = ({"alg": "none"}, claims)
    return "".join(base64.urlsafe_b64encode(_json(part)).decode().rstrip("=") + "." for part in parts), now + lifetime


def seconds(claims: Mapping[str, Any], name: str) -> float | None:
    """A time among the claims, in seconds since 1970; None when it is absent.

    :raises TokenError: it is not a time.
    """
    found = claims.get(name)
    if found is None:
        return None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    # A whole number may be too big for a float, although it is finite.
    if not is_number or (isinstance(found, float) and not math.isfinite(found)) or found < 0:
        raise TokenError(f"claim {name} is not a time")
    return float(min(found, MAX_SECONDS))


def _claims(token: str) -> Mapping[str, Any]:
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise TokenError("the token is not an unsecured token of three parts")
    header, claims = _object(parts[0]), _object(parts[1])
    if header.get("alg") != "none":
        raise TokenError("the token is signed, and no validator of signed tokens is configured")
    return claims


def _object(part: str) -> Mapping[str, Any]:
    try:
        raw = base64.b64decode(part.translate(_TO_STANDARD) + "=" * (-len(part) % 4), validate=True)
        found = json.loads(raw, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise TokenError("the token is malformed") from error
    if not isinstance(found, dict):
        raise TokenError("the token is malformed")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(text)


def _scope(found: Any) -> Sequence[str]:
    if isinstance(found, str):
        return [found.strip()]
    return [part.strip() for part in found if isinstance(part, str)] if isinstance(found, list) else []


def _json(part: Mapping[str, Any]) -> bytes:
    return json.dumps(part, separators=(",", ":")).encode()


def _list(text: str) -> list[str]:
    """Split a list in Kafka's form, whose first character is the separator."""
    return text[1:].split(text[0]) if len(text) > 1 else []


_TO_STANDARD = str.maketrans("-_", "+/")
_CLAIMS: Mapping[str, Callable[[str], Any]] = {
    "unsecuredLoginStringClaim_": str,
    "unsecuredLoginNumberClaim_": float,
    "unsecuredLoginListClaim_": _list,
}
