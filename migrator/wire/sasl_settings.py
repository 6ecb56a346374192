"""SASL of a listener from Kafka's own ``sasl.*`` keys, with inline JAAS entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from migrator.config.key_lists import PLAIN_VALIDATOR
from migrator.config.types import Secret, parse, split_list
from migrator.errors import OperatorError
from migrator.wire.jaas import jaas_options
from migrator.wire.listener_keys import ListenerKeys
from migrator.wire.oauth_settings import bearer_login, token_validator
from migrator.wire.sasl import MECHANISMS, OAUTHBEARER, PLAIN, ClientExchange, SaslServer, ScramAccounts, ServerExchange
from migrator.wire.sasl.exchange import Passwords
from migrator.wire.sasl.login import Login, PasswordLogin
from migrator.wire.sasl.oauthbearer import OAuthBearerServer, TokenValidator
from migrator.wire.sasl.plain import PlainServer
from migrator.wire.sasl.scram import ScramServer

MAX_RECEIVE_SIZE = "sasl.server.max.receive.size"
MAX_REAUTH_MS = "connections.max.reauth.ms"
DEFAULT_RECEIVE_SIZE = "524288"
SERVER_HANDLER = "sasl.server.callback.handler.class"
CLIENT_CLASSES = ("sasl.client.callback.handler.class", "sasl.login.class", "sasl.login.callback.handler.class")

NewExchange = Callable[[], ServerExchange]


@dataclass(frozen=True, kw_only=True)
class SaslSettings:
    """SASL of one listener. ``exchanges``: those of the accepted mechanisms; the rest is for this node's own logins."""

    exchanges: Mapping[str, NewExchange] = field(default_factory=dict, repr=False)
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    """The milliseconds until a client must re-authenticate, by mechanism; 0: never."""
    max_receive_bytes: int = int(DEFAULT_RECEIVE_SIZE)
    """The most bytes of a request during authentication."""
    login: Login | None = field(default=None, repr=False)
    validator: TokenValidator | None = field(default=None, repr=False)
    """The validator of OAUTHBEARER, if it is enabled."""

    def prepare(self) -> None:
        """Begin to fetch the keys that logins will need."""
        if self.validator is not None:
            self.validator.prepare()

    @property
    def client_user(self) -> str:
        """The user of this node's own logins, "" when it is known only at the login."""
        login = self.login
        return login.user if isinstance(login, PasswordLogin) and not login.is_token else ""

    def server(self) -> SaslServer:
        """A new connection's server side."""
        return SaslServer(self.exchanges, self.max_reauth_ms)

    def client(self) -> tuple[str, ClientExchange]:
        """The mechanism and the client side of a new connection. May block.

        :raises AuthenticationError: there is no credential.
        :raises ValueError: no client mechanism is configured.
        """
        if self.login is None:
            raise ValueError("no client mechanism is configured")
        return self.login.mechanism, self.login.exchange()


def sasl_settings(
    keys: ListenerKeys, client_mechanism: str | None, accounts: ScramAccounts, *, serves: bool = True
) -> SaslSettings:
    """SASL of one listener, as `listener_security` describes it.

    :raises OperatorError: a key's value cannot be used.
    """
    role = "controller" if serves else "inter.broker"
    login = None if client_mechanism is None else _login(keys, client_mechanism, f"sasl.mechanism.{role}.protocol")
    if not serves:
        return SaslSettings(login=login)
    enabled = _enabled(keys)
    _refuse_classes(keys, enabled)
    validator = token_validator(keys) if OAUTHBEARER in enabled else None
    return SaslSettings(
        exchanges={mechanism: _exchange(keys, mechanism, accounts, validator) for mechanism in enabled},
        validator=validator,
        max_reauth_ms={
            mechanism: number(keys, MAX_REAUTH_MS, "long", "0", mechanism=mechanism) for mechanism in enabled
        },
        max_receive_bytes=number(keys, MAX_RECEIVE_SIZE, "int", DEFAULT_RECEIVE_SIZE, valid="[1,...]"),
        login=login,
    )


def number(
    keys: ListenerKeys, key: str, kind: str, default: str, *, valid: str = "", mechanism: str | None = None
) -> int:
    """A whole number under a listener's key. A value for the mechanism overrides one for all.

    :raises OperatorError: the value is not a whole number, or out of bounds.
    """
    where, text = keys.find(key) if mechanism is None else keys.find_for(mechanism, key)
    try:
        found = parse(kind, default if text is None else text, valid)
    except ValueError as error:
        raise OperatorError(f"{error} (value {text!r})", where=where, remedy=f"Kafka's default is {default}") from error
    return int(str(found))


def _enabled(keys: ListenerKeys) -> tuple[str, ...]:
    where, text = keys.find("sasl.enabled.mechanisms")
    enabled = tuple(dict.fromkeys(name.upper() for name in split_list(text or "GSSAPI") if name))
    for mechanism in enabled:
        _check_supported(mechanism, where, keys)
    return enabled


def _check_supported(mechanism: str, where: str, keys: ListenerKeys) -> None:
    if mechanism in MECHANISMS:
        return
    default = " (Kafka's default)" if mechanism == "GSSAPI" else ""
    raise OperatorError(
        f"SASL mechanism {mechanism}{default} is not supported",
        where=where,
        remedy=f"Use {', '.join(MECHANISMS)} on this listener: {keys.own_key('sasl.enabled.mechanisms')} says what it "
        "accepts, and leaves other listeners as they are",
    )


def _exchange(
    keys: ListenerKeys, mechanism: str, accounts: ScramAccounts, validator: TokenValidator | None
) -> NewExchange:
    if mechanism == PLAIN:
        _, options = jaas_options(keys, PLAIN)
        passwords = Passwords(
            {name.removeprefix("user_"): text for name, text in options.items() if name.startswith("user_")}
        )
        return lambda: PlainServer(passwords)
    if validator is not None and mechanism == OAUTHBEARER:
        return lambda: OAuthBearerServer(validator)
    return lambda: ScramServer(mechanism, accounts)


def _login(keys: ListenerKeys, mechanism: str, named_by: str) -> Login:
    _check_supported(mechanism, named_by, keys)
    if mechanism == OAUTHBEARER:
        return bearer_login(keys)
    for key in CLIENT_CLASSES:
        where, name = keys.find_for(mechanism, key)
        if name:
            raise OperatorError(
                f"{name} is a Java class, which cannot run here",
                where=where,
                remedy="Remove the key from this node's file, and put user and password into the JAAS entry",
            )
    _, options = jaas_options(keys, mechanism)
    is_token = mechanism != PLAIN and options.get("tokenauth", "").lower() == "true"
    return PasswordLogin(mechanism, options.get("username", ""), Secret(options.get("password", "")), is_token)


def _refuse_classes(keys: ListenerKeys, enabled: tuple[str, ...]) -> None:
    """Refuse configured classes that would check credentials in Kafka: this program does not have them, and must not
    check in another way than the operator asked for."""
    where, name = keys.find(SERVER_HANDLER)
    if name:
        raise OperatorError(
            "the key has no mechanism in its name, and Kafka reads this key only with one",
            where=where,
            remedy=f"Write {keys.own_key(f'<mechanism>.{SERVER_HANDLER}')}, or remove the key",
        )
    for mechanism in enabled:
        where, name = keys.find(f"{mechanism.lower()}.{SERVER_HANDLER}")
        if name and mechanism != OAUTHBEARER and not (mechanism == PLAIN and name == PLAIN_VALIDATOR):
            raise OperatorError(
                f"{name} is a Java class, which cannot run here, and it decides who may log in",
                where=where,
                remedy="Remove the key: Kafka's own credentials are then used. Or use TLS client certificates",
            )
