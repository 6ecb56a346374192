"""The entity of each znode below /config, and the parts of it that brokers obey. Several znodes may be of one entity.

Some tools write names without URL-encoding, or with another encoding. A broker in ZooKeeper mode lists the znodes at
its start, in no fixed order, and reads them as follows (``UserConfigHandler``, ``ClientIdConfigHandler``,
``IpConfigHandler``, ``BrokerConfigHandler``, ``ClientQuotaManager``):

* Credentials belong to the decoded name of the user's znode, with any spelling.
* Quotas of a user, and of a user's clients, count only where the user's znode has the *canonical* name, the one that
  Kafka's own tools give it: brokers look them up by the encoded name.
* Quotas of a client belong to the decoded name of the client's znode.
* The name of an ip's znode is the address as it is. Brokers do not start with an encoded one, such as ``%3A%3A1``.
* The name of a broker's znode is a number: ``01`` is broker 1. Brokers do not start with another text.

So an entity has one canonical name, and none, one or several znodes. When several disagree, the canonical one counts,
or the first by name if there is no canonical one. A znode without content does not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.configs import decode_config
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.fields import INT32_MAX, INT32_MIN
from migrator.zookeeper.znodes.scram import UserConfig, split_user_config

_NODE = r"(?:<default>|(?:[A-Za-z0-9._-]|%(?:2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-E]))+)"
_PLAIN = re.compile(rf"(?:users|clients)/{_NODE}|users/{_NODE}/clients/{_NODE}")
"""A quick test that nearly all canonical names pass: exactly the ASCII characters that need encoding are encoded."""
_NUMBER = re.compile(r" *([+-]?[0-9]{1,10}) *")
_REMEDY = "Kafka's tools never write such a name: delete the znode if nobody uses it"

Held = Sequence[tuple[str, bytes | None]]
"""The znodes of an entity: name below /config, and data. The canonical one comes first, if there is one."""
K_ = TypeVar("K_")
V_ = TypeVar("V_")


def canonical(name: str) -> str:
    """The canonical name of the entity for a name below /config, such as ``users/a@b``.

    :raises ZnodeError: the name is invalid. Brokers do not start with such a znode.
    """
    if _PLAIN.fullmatch(name):
        return name
    path = paths.config(name)
    match name.split("/"):
        case ["users" | "clients" as kind, node]:
            return f"{kind}/{_encoded(path, node)}"
        case ["users", user, "clients", client]:
            return f"users/{_encoded(path, user)}/clients/{_encoded(path, client)}"
        case ["ips", node]:
            return f"ips/{address(path, node)}"
        case ["brokers", node]:
            return f"brokers/{_broker(path, node)}"
        case ["topics", _]:
            return name
    raise ZnodeError(path, "the znode is not the config of a user, client, ip, broker or topic", "Delete the znode")


def address(path: str, node: str) -> str:
    """The address for the name of an ip's znode. Every encoder encodes colons, so in a name with a colon ``%`` begins
    the scope of an IPv6 address.

    :raises ZnodeError: the name is neither an address nor an encoded one.
    """
    return node if ":" in node or "%" not in node else paths.desanitize(path, node)


def grouped(names: Iterable[str], on_fault: Callable[[ZnodeError], None]) -> dict[str, list[str]]:
    """The names by their entities' canonical ones, a canonical name first. It leaves out the children of a user's znode
    without the canonical name: no broker obeys them.

    :param on_fault: hears of names that stand for nothing.
    """
    found: dict[str, list[str]] = {}
    for name in names:
        try:
            entity = canonical(name)
        except ZnodeError as fault:
            on_fault(fault)
            continue
        if is_obeyed(name, entity):
            found.setdefault(entity, []).append(name)
    for entity, spellings in found.items():
        if len(spellings) > 1:
            spellings.sort(key=lambda name, entity=entity: (name != entity, name))  # type: ignore[misc]
    return found


def is_obeyed(name: str, entity: str) -> bool:
    """Whether brokers obey the quotas or the config of a znode with that name.

    :param entity: its canonical name.
    """
    if name == entity:
        return True
    return "/clients/" not in name or name.split("/")[1] == entity.split("/")[1]


def user_config(entity: str, held: Held) -> UserConfig:
    """The quotas and credentials in force of a user, client, user's client or ip.

    :raises ZnodeError: a znode does not decode, or brokers do not start with it.
    """
    parsed = []
    for name, data in held:
        if name != entity and name.startswith("ips/"):
            raise ZnodeError(paths.config(name), "brokers do not start with this name: it is URL-encoded", _REMEDY)
        parsed.append((name, split_user_config(paths.config(name), decode_config(paths.config(name), data))))
    is_user = entity.startswith("users/") and "/clients/" not in entity
    quotas = first_held(config.quotas for name, config in parsed if name == entity or not is_user)
    return UserConfig(quotas, first_held(config.credentials for _, config in parsed))


def first_held(contents: Iterable[Mapping[K_, V_]]) -> Mapping[K_, V_]:
    """The content in force, of the contents of an entity's znodes."""
    return next(filter(None, contents), {})


def _encoded(path: str, node: str) -> str:
    return node if node == paths.DEFAULT_ENTITY else paths.sanitize(paths.desanitize(path, node))


def _broker(path: str, node: str) -> str:
    if node == paths.DEFAULT_ENTITY:
        return node
    match = _NUMBER.fullmatch(node)
    if match is None or not INT32_MIN <= int(match[1]) <= INT32_MAX:
        raise ZnodeError(path, f"brokers do not start with this name: {node!r} is no broker id", _REMEDY)
    return str(int(match[1]))
