"""Checks by property files alone whether a broker's login at its controllers can succeed. Pure.

Source: ``RaftManager`` and ``NodeToControllerChannelManager`` take ``sasl.mechanism.controller.protocol``, and
``JaasContext.loadServerContext`` the login of the controllers' listener.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from migrator.config.jaas import JaasSyntaxError, LoginModule, parse_entry
from migrator.config.kafka_rules import PLACEHOLDER
from migrator.config.kafkas_broker import MECHANISM
from migrator.config.reading import is_set, text_of
from migrator.config.settings import Settings
from migrator.values import value
from migrator.wire.jaas import MODULES
from migrator.wire.sasl import PLAIN

SERVER_HANDLER = "plain.sasl.server.callback.handler.class"


@value
class Doubt:
    """Why a login fails or may fail. ``key``: the key in the broker's file."""

    key: str
    what: str
    remedy: str
    is_certain: bool = True


def doubts_of(broker: Mapping[str, str], controller: Settings, listener: str) -> Iterator[Doubt]:
    """
    :param broker: the keys of the broker's file. A value ``${...}`` comes from another file and is not checked.
    :param listener: the name of the controllers' listener, which has SASL.
    """
    mechanism, taken = text_of(broker, MECHANISM), [name.upper() for name in controller.mechanisms_of(listener)]
    if mechanism not in taken:
        default = "" if is_set(broker, MECHANISM) else ", which is Kafka's default"
        what = f"it logs in with {mechanism}{default}, and controller {controller.node_id} takes {', '.join(taken)}"
        yield Doubt(MECHANISM, f"{what} on listener {listener}", f"Set {MECHANISM} to a mechanism that is taken there")
        return
    key = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    if not is_set(broker, key):
        section = f"{listener.lower()}.KafkaServer or KafkaServer"
        remedy = f"Set this key; or see that the JAAS file of the broker's process has a login in a section {section}"
        yield Doubt(key, f"the file has no login for the controllers' listener {listener}", remedy, is_certain=False)
    elif fault := _fault(broker[key]):
        what = f"the login for the controllers' listener {listener} cannot be read: {fault}"
        yield Doubt(key, what, 'Write: MODULE required name="value" ... ;', is_certain=False)
    elif mechanism == PLAIN and not is_set(controller.explicit, f"listener.name.{listener.lower()}.{SERVER_HANDLER}"):
        yield from _unknown_user(key, _entry(broker, key), _entry(controller.explicit, key), controller.node_id)


def _unknown_user(key: str, own: LoginModule | None, theirs: LoginModule | None, node_id: int) -> Iterator[Doubt]:
    """A doubt when the controller's entry lacks the broker's user. Only Kafka's own login modules can be checked:
    others may have users that the entry does not name."""
    if own is None or theirs is None or {own.name, theirs.name} != {MODULES[PLAIN]}:
        return
    name = own.options.get("username", "")
    known = theirs.options.get(f"user_{name}")
    remedy = f'Add user_{name}="..." to this key of controller {node_id}, with the password of the broker'
    if known is None:
        yield Doubt(key, f"controller {node_id} does not know the user {name!r}", remedy)
    elif known != own.options.get("password", ""):
        yield Doubt(key, f"controller {node_id} has another password for the user {name!r}", remedy)


def _fault(text: str) -> str:
    """Why a text is not one JAAS entry; "" when it is one, or comes from another file. The reason quotes nothing of the
    text, which holds secrets."""
    try:
        if PLACEHOLDER not in text:
            parse_entry(text)
    except JaasSyntaxError as error:
        return str(error)
    return ""


def _entry(keys: Mapping[str, str], key: str) -> LoginModule | None:
    """The JAAS entry under a key; None when it comes from another file, or is not one entry."""
    text = keys.get(key, "")
    try:
        return None if PLACEHOLDER in text else parse_entry(text)
    except JaasSyntaxError:
        return None
