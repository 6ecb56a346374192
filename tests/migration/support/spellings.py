"""Respells a ZooKeeper as tools of others would, and obeys it as a broker in ZooKeeper mode does at its start.

Written down once more from Kafka's source, without the product's code, so that a mistake there cannot hide itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from random import Random
from typing import Any
from urllib.parse import quote, unquote_plus

from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support.images import NOTICES, PASSWORDS

LONGS = ("producer_byte_rate", "consumer_byte_rate", "connection_creation_rate")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
DEFAULT = "<default>"


def encoded(name: str) -> str:
    """As ``Sanitizer.sanitize`` writes it."""
    return quote(name, safe="").replace("~", "%7E")


class Respeller:
    """Makes other texts that brokers read as the same."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def maybe(self) -> bool:
        return self._random.random() < 0.5

    def json(self, value: Any) -> str:
        """Blanks, another order, keys that come twice (the last one counts)."""
        blank = self._random.choice(["", " ", "\n\t"])
        if isinstance(value, dict):
            members = list(value.items())
            self._random.shuffle(members)
            parts = [f"{json.dumps(key)}{blank}:{self.json(member)}" for key, member in members]
            twice = [f'{json.dumps(key)}:["x"]' for key in value if self._random.random() < 0.2]
            return "{" + f"{blank},".join([*twice, *parts]) + blank + "}"
        if isinstance(value, list):
            return "[" + f",{blank}".join(map(self.json, value)) + "]"
        return json.dumps(value, ensure_ascii=self.maybe())

    def case(self, word: str) -> str:
        return self._random.choice([word, word.upper(), word.lower()])

    def name(self, node: str) -> str:
        """Of a znode of a user or client: encoded, not encoded, half encoded, in lower-case digits."""
        if node == DEFAULT:
            return node
        plain = unquote_plus(node)
        return "".join(map(self._character, plain))

    def _character(self, character: str) -> str:
        escape = "".join(f"%{byte:02X}" for byte in character.encode())
        forms = [encoded(character), escape, escape.lower()]
        if character not in "%+/" and ord(character) < 0x10000:
            forms.append(character)
        if character == " ":
            forms.append("+")
        return self._random.choice(forms)

    def broker(self, node: str) -> str:
        return node if node == DEFAULT else self._random.choice(["0", "00", "+", ""]) + node

    def config(self, key: str, text: str) -> str:
        if key.startswith("SCRAM-"):
            parts = text.split(",")
            self._random.shuffle(parts)
            bare = [part.rstrip("=") if self.maybe() and "=" in part.rstrip("=") else part for part in parts]
            return ",".join(bare) + self._random.choice(["", ","])
        if key in LONGS:
            return self._random.choice(["", "+", "0"]) + text
        if key in {"request_percentage", "controller_mutation_rate"}:
            return self._random.choice(["{}", " {} ", "{}d", "{}e0", "+{}"]).format(text)
        return text

    def acls(self, data: Any) -> Any:
        words = ("operation", "permissionType")
        return {
            "version": 1,
            "acls": [
                {key: self.case(word) if key in words else word for key, word in entry.items()}
                for entry in [*data["acls"], *data["acls"][:1]]
            ],
        }

    def token(self, data: Any) -> Any:
        """Version 2 has no requester: it is the owner."""
        found = dict(data, owner=self.name(data["owner"]), renewers=list(map(self.name, data["renewers"])))
        found["tokenRequester"] = self.name(data["tokenRequester"])
        if data["owner"] == data["tokenRequester"] and self.maybe():
            found |= {"version": 2}
            del found["tokenRequester"]
        return found

    def topic(self, data: Any) -> Any:
        found = dict(data, version=self._random.choice([3, 1, "x"]))
        found["topic_id"] += self._random.choice(["", "=="])
        return found


def respell(zookeeper: ModelZooKeeper, random: Random) -> None:
    """Every znode of Kafka's metadata, names and contents; some configs get a second znode."""
    speller = Respeller(random)
    for path, data in list(zookeeper.dump().items()):
        if not data or path.startswith(NOTICES):
            continue
        if path.startswith("/config/"):
            _respell_config(zookeeper, speller, path, json.loads(data)["config"])
        else:
            text = _other(speller, path, json.loads(data))
            zookeeper.load({path: text.encode()}, {path: zookeeper.dump_versions()[path]})  # the version is the epoch


def _other(speller: Respeller, path: str, data: Any) -> str:
    if path.startswith("/kafka-acl"):
        return speller.json(speller.acls(data))
    if path.startswith("/delegation_token/tokens/"):
        return speller.json(speller.token(data) | {"more": 1})
    if path == "/latest_producer_id_block":
        return speller.json(data | {"version": "x", "block_end": f"+0{data['block_end']}"})
    if path.startswith("/brokers/topics/") and "topic_id" in data:
        return speller.json(speller.topic(data) | {"more": {}})
    return speller.json(data | {"more": None, "version": 7})


def _respell_config(zookeeper: ModelZooKeeper, speller: Respeller, path: str, config: dict[str, str]) -> None:
    def write(to: str) -> None:
        spelt = {key: speller.config(key, text) for key, text in config.items()}
        text = speller.json({"version": "x", "config": spelt, "more": []}).encode()
        if zookeeper.get(to) is None:
            zookeeper.create(to, text, parents=True)
        else:
            zookeeper.set(to, text)

    write(path)
    parent, _, node = path.rpartition("/")
    kind = path.split("/")[2]
    spell: dict[str, Callable[[str], str]] = {"users": speller.name, "clients": speller.name, "brokers": speller.broker}
    if kind not in spell or not config:
        return
    other = f"{parent}/{spell[kind](node)}"
    if other == path:
        return
    write(other)
    is_user = parent == "/config/users"
    has_quotas = any(not key.startswith("SCRAM-") for key in config)
    if speller.maybe() and not (is_user and has_quotas) and not zookeeper.list_children(path):
        zookeeper.delete(path)


class _Broker:
    """At its start: it takes each znode as it comes, the later one over the earlier."""

    def __init__(self, zookeeper: ModelZooKeeper, random: Random) -> None:
        self._zookeeper = zookeeper
        self._random = random
        self.quotas: dict[tuple[str | None, ...], dict[str, float]] = {}
        self.credentials: dict[tuple[str, str], str] = {}
        self.configs: dict[str, dict[str, str]] = {}

    def start(self) -> None:
        for user in self._listed("/config/users"):
            self._user(user)
            for client in self._listed(f"/config/users/{user}/clients"):
                self._quotas(("user", user, _plain(client)), f"/config/users/{user}/clients/{client}")
        for client in self._listed("/config/clients"):
            self._quotas(("client", _plain(client)), f"/config/clients/{client}")
        for ip in self._listed("/config/ips"):
            self._quotas(("ip", ip), f"/config/ips/{ip}")
        for broker in self._listed("/config/brokers"):
            name = broker if broker == DEFAULT else str(int(broker))
            self.configs[name] = {
                key: PASSWORDS.decode(broker, key, text) if "password" in key else text
                for key, text in self._config(f"/config/brokers/{broker}").items()
            }

    def _user(self, user: str) -> None:
        self._quotas(("user", user), f"/config/users/{user}")
        found = self._config(f"/config/users/{user}")
        for mechanism in SCRAM if user != DEFAULT else ():
            self.credentials.pop((unquote_plus(user), mechanism), None)
            if mechanism in found:
                parts = sorted(part.rstrip("=") for part in found[mechanism].rstrip(",").split(","))
                self.credentials[unquote_plus(user), mechanism] = ",".join(parts)

    def _quotas(self, entity: tuple[str | None, ...], path: str) -> None:
        self.quotas[entity] = {
            key: float(int(text) if key in LONGS else float(text.rstrip(" d")))
            for key, text in self._config(path).items()
            if key not in SCRAM
        }

    def _listed(self, path: str) -> Iterable[str]:
        names = list(self._zookeeper.list_children(path) or ())
        self._random.shuffle(names)
        return names

    def _config(self, path: str) -> dict[str, str]:
        znode = self._zookeeper.get(path)
        return dict(json.loads(znode.data)["config"]) if znode is not None and znode.data else {}


def obeyed(zookeeper: ModelZooKeeper, random: Random) -> dict[str, Any]:
    """The configuration that a broker takes from a ZooKeeper at its start, in ZooKeeper's order of the znodes."""
    broker = _Broker(zookeeper, random)
    broker.start()
    return {
        "quotas": {entity: values for entity, values in broker.quotas.items() if values and _is_looked_up(entity)},
        "credentials": broker.credentials,
        "brokers": {name: found for name, found in broker.configs.items() if found},
    }


def _plain(client: str) -> str | None:
    return None if client == DEFAULT else unquote_plus(client)


def _is_looked_up(entity: tuple[str | None, ...]) -> bool:
    """Users are looked up by the encoded name of whoever has logged in."""
    kind, node = entity[:2]
    return kind != "user" or node is None or node in {DEFAULT, encoded(unquote_plus(node))}
