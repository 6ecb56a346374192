"""JAAS files of ZooKeeper's clients."""

from __future__ import annotations

from migrator.parts.zookeeper import quoted


def client_jaas(user: str, password: str, section: str = "Client") -> str:
    """The section of a client's JAAS file, as stock brokers and controllers have it."""
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    return f"{section} {{\n    {module}\n    username={quoted(user)}\n    password={quoted(password)};\n}};\n"
