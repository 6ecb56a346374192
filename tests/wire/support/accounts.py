"""Users of a test's listener."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.wire.principal import Principal
from migrator.wire.sasl import Authenticated, NoAccounts, ScramAccount, scram_credential

SALT = b"0123456789abcdef"


class Accounts(NoAccounts):
    """A `ScramAccounts` of a few users and delegation tokens.

    :param users: password by user.
    :param tokens: HMAC in text, owner and end (ms since 1970) by token id.
    """

    def __init__(self, users: Mapping[str, str], tokens: Mapping[str, tuple[str, str, int]] | None = None) -> None:
        self.users = dict(users)
        self.tokens = dict(tokens or {})

    def user(self, mechanism: str, name: str) -> ScramAccount:
        if name not in self.users:
            return super().user(mechanism, name)
        known = scram_credential(mechanism, self.users[name], SALT)
        return ScramAccount(known, Authenticated(Principal("User", name)))

    def token(self, mechanism: str, token_id: str) -> ScramAccount:
        if token_id not in self.tokens:
            return super().user(mechanism, token_id)
        password, owner, until = self.tokens[token_id]
        principal = Principal("User", owner, token_authenticated=True)
        return ScramAccount(scram_credential(mechanism, password, SALT), Authenticated(principal, until))
