"""SASL of a listener from Kafka's own ``sasl.*`` keys, with inline JAAS entries; OAUTHBEARER after KIP-255, KIP-768.

`security.listener_security` calls it at the start. It never checks credentials in another way than the file says: a
handler class, a mechanism or an address that this program does not know is refused with key, value and remedy, before a
listener opens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from migrator.config.key_lists import (
    OAUTHBEARER_LOGINS,
    OAUTHBEARER_VALIDATORS,
    PLAIN_VALIDATOR,
    UNSECURED_LOGIN,
    UNSECURED_VALIDATOR,
)
from migrator.config.types import Secret, parse, split_list
from migrator.errors import OperatorError
from migrator.wire.jaas import has_jaas, jaas_options
from migrator.wire.listener_keys import ListenerKeys
from migrator.wire.sasl import MECHANISMS, OAUTHBEARER, PLAIN, ClientExchange, SaslServer, ScramAccounts, ServerExchange
from migrator.wire.sasl.exchange import Passwords
from migrator.wire.sasl.https import Address, parse_address, read_file, request
from migrator.wire.sasl.jwks import KeySet
from migrator.wire.sasl.jwt_tokens import SignedTokenValidator, TokenRules
from migrator.wire.sasl.login import BearerLogin, Fetch, Login, PasswordLogin, client_credentials, from_file, unsecured
from migrator.wire.sasl.oauthbearer import OAuthBearerServer, TokenValidator, check_extensions
from migrator.wire.sasl.plain import PlainServer
from migrator.wire.sasl.scram import ScramServer
from migrator.wire.sasl.unsecured import UnsecuredRules, UnsecuredValidator
from migrator.wire.tls import client_context

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
        """The server's side of the login on a new connection."""
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
            remedy = "Remove the key from this node's file, and put user and password into the JAAS entry"
            raise _java_class(name, where, remedy)
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
            remedy = "Remove the key: Kafka's own credentials are then used. Or use TLS client certificates"
            raise _java_class(name, where, remedy, admits=True)


def _java_class(name: str, where: str, remedy: str, *, admits: bool = False) -> OperatorError:
    """The error for a Java class. ``admits``: whether the class decides in Kafka who may log in."""
    also = ", and it decides who may log in" if admits else ""
    return OperatorError(f"{name} is a Java class, which cannot run here{also}", where=where, remedy=remedy)


def _refuse_unread(keys: ListenerKeys, url: str, class_key: str, wanted: str, reader: str) -> None:
    """Refuse an address that nothing reads, because ``class_key`` does not name the class ``wanted``."""
    where, text = keys.find_for(OAUTHBEARER, url)
    if text:
        own = keys.own_key(f"oauthbearer.{class_key}")
        what = f"the key is set, but {own} does not name the {reader}"
        raise OperatorError(what, where=where, remedy=f"Set {own}={wanted}")


LOGIN_KEY = "sasl.login.callback.handler.class"
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a key


def token_validator(keys: ListenerKeys) -> TokenValidator:
    """The validator of clients' tokens.

    :raises OperatorError: a key's value cannot be used, or names a validator that this program does not have.
    """
    where, name = keys.find(f"oauthbearer.{SERVER_HANDLER}")
    if name in OAUTHBEARER_VALIDATORS:
        return SignedTokenValidator(_token_rules(keys), _key_set(keys))
    if name not in (None, "", UNSECURED_VALIDATOR):
        raise _java_class(name, where, f"Use {OAUTHBEARER_VALIDATORS[0]} with {JWKS_URL}", admits=True)
    reader = "validator that uses it: unsigned tokens would be accepted"
    _refuse_unread(keys, JWKS_URL, SERVER_HANDLER, OAUTHBEARER_VALIDATORS[0], reader)
    return UnsecuredValidator(_unsecured_rules(keys))


def bearer_login(keys: ListenerKeys) -> BearerLogin:
    """The source of this node's own tokens.

    :raises OperatorError: a key's value cannot be used, or names a login that this program does not have.
    """
    jaas, options = jaas_options(keys, OAUTHBEARER)
    for key in ("sasl.client.callback.handler.class", "sasl.login.class"):
        where, name = keys.find_for(OAUTHBEARER, key)
        if name:
            raise _java_class(name, where, "Remove the key")
    where, name = keys.find_for(OAUTHBEARER, LOGIN_KEY)
    if name in OAUTHBEARER_LOGINS:
        extensions, fetch = _options_of(options, "extension_"), _fetch(keys, jaas, options)
    elif name in (None, "", UNSECURED_LOGIN):
        _refuse_unread(keys, TOKEN_URL, LOGIN_KEY, OAUTHBEARER_LOGINS[0], "login that uses it")
        extensions, fetch = _options_of(options, "unsecuredLoginExtension_"), unsecured(options)
        try:
            fetch()
        except ValueError as error:
            raise OperatorError(
                str(error), where=jaas, remedy='Write unsecuredLoginStringClaim_sub="the principal\'s name"'
            ) from error
    else:
        raise _java_class(name, where, f"Use {OAUTHBEARER_LOGINS[0]} with {TOKEN_URL}")
    try:
        check_extensions(extensions)
    except ValueError as error:
        raise OperatorError(
            str(error), where=jaas, remedy="Remove the extension, or write letters only in its name"
        ) from error
    return BearerLogin(fetch, extensions)


def _options_of(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text for name, text in options.items() if name.startswith(prefix)}


def _token_rules(keys: ListenerKeys) -> TokenRules:
    return TokenRules(
        audiences=split_list(_text(keys, "sasl.oauthbearer.expected.audience")),
        issuer=_text(keys, "sasl.oauthbearer.expected.issuer") or None,
        clock_skew_s=_number(keys, "sasl.oauthbearer.clock.skew.seconds", "30"),
        scope_claim=_text(keys, "sasl.oauthbearer.scope.claim.name") or "scope",
        sub_claim=_text(keys, "sasl.oauthbearer.sub.claim.name") or "sub",
    )


def _unsecured_rules(keys: ListenerKeys) -> UnsecuredRules:
    if not has_jaas(keys, OAUTHBEARER):
        return UnsecuredRules()
    jaas, options = jaas_options(keys, OAUTHBEARER)
    skew = options.get("unsecuredValidatorAllowableClockSkewMs", "").strip() or "0"
    if not skew.isdecimal():
        raise OperatorError(
            "unsecuredValidatorAllowableClockSkewMs is not a whole number",
            where=jaas,
            remedy="Write milliseconds, as 3000",
        )
    return UnsecuredRules(
        principal_claim=options.get("unsecuredValidatorPrincipalClaimName", "").strip() or "sub",
        scope_claim=options.get("unsecuredValidatorScopeClaimName", "").strip() or "scope",
        required_scope=tuple(options.get("unsecuredValidatorRequiredScope", "").split()),
        clock_skew_ms=int(skew),
    )


def _key_set(keys: ListenerKeys) -> KeySet:
    where, at = _address(keys, JWKS_URL)
    refresh_s = _number(keys, "sasl.oauthbearer.jwks.endpoint.refresh.ms", "3600000", "[1,...]") / 1000
    backoff_s = (
        _number(keys, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "100") / 1000,
        _number(keys, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "10000") / 1000,
    )
    if at.scheme == "file":
        found = KeySet(where, lambda: read_file(at.path), refresh_s, backoff_s)
        found.load()
        return found
    options = jaas_options(keys, OAUTHBEARER)[1] if has_jaas(keys, OAUTHBEARER) else {}
    context = client_context(ListenerKeys(options, ""))
    return KeySet(where, lambda: request(at, context), refresh_s, backoff_s)


def _fetch(keys: ListenerKeys, jaas: str, options: Mapping[str, str]) -> Fetch:
    _, at = _address(keys, TOKEN_URL)
    if at.scheme == "file":
        return from_file(lambda: read_file(at.path))
    for option in ("clientId", "clientSecret"):
        if not options.get(option, "").strip():
            raise OperatorError(f"{option} is missing", where=jaas, remedy=f'Write {option}="..." in the JAAS entry')
    context = client_context(ListenerKeys(options, ""))

    def post(body: bytes, headers: Mapping[str, str]) -> bytes:
        return request(at, context, body=body, headers=headers)

    return client_credentials(
        post,
        options["clientId"].strip(),
        Secret(options["clientSecret"].strip()),
        options.get("scope", "").strip(),
    )


def _address(keys: ListenerKeys, key: str) -> tuple[str, Address]:
    where, text = keys.find_for(OAUTHBEARER, key)
    try:
        return where, parse_address((text or "").strip())
    except ValueError as error:
        raise OperatorError(
            f"{error}" if text else "the key is not set",
            where=where,
            remedy="Name an https: address, or a file: of this machine. With http, anybody on the network could answer",
        ) from error


def _text(keys: ListenerKeys, key: str) -> str:
    return (keys.find_for(OAUTHBEARER, key)[1] or "").strip()


def _number(keys: ListenerKeys, key: str, default: str, valid: str = "[0,...]") -> int:
    where, text = keys.find_for(OAUTHBEARER, key)
    try:
        return int(str(parse("long", default if text is None else text, valid)))
    except ValueError as error:
        raise OperatorError(f"{error} (value {text!r})", where=where, remedy=f"Kafka's default is {default}") from error
