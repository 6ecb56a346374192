"""The keys of one listener: ``listener.name.<name>.<key>``, or ``<key>`` if that is missing (KIP-103)."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.config.types import trimmed


class ListenerKeys:
    def __init__(self, properties: Mapping[str, str], listener: str) -> None:
        self.listener = listener
        self._properties = properties
        self._prefix = f"listener.name.{listener.lower()}."

    def find(self, key: str) -> tuple[str, str | None]:
        """The full key that is in force, and its value, trimmed as in Kafka."""
        for name in (self._prefix + key, key):
            if name in self._properties:
                return name, trimmed(self._properties[name])
        return key, None

    def find_for(self, mechanism: str, key: str) -> tuple[str, str | None]:
        """Like `find`, but a value for that SASL mechanism overrides one for all mechanisms."""
        name, text = self.find(f"{mechanism.lower()}.{key}")
        return self.find(key) if text is None else (name, text)

    def own_key(self, key: str) -> str:
        """The key's full name for this listener alone."""
        return self._prefix + key

    def get(self, key: str, default: str = "") -> str:
        found = self.find(key)[1]
        return default if found is None else found

    def own(self, key: str) -> str | None:
        """The value set for this listener alone."""
        text = self._properties.get(self._prefix + key)
        return None if text is None else trimmed(text)
