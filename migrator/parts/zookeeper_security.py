"""Settings with which a ZooKeeper server authenticates its clients: TLS, SASL DIGEST-MD5, or both.

`EmbeddedZooKeeper` takes them as options; each gives lines of the server's files. With TLS there is no port in clear.
Source: ZooKeeper's administrator's guide (``secureClientPort``, ``ssl.*``, ``authProvider.*``,
``sessionRequireClientSASLAuth``) and ``DigestLoginModule``.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_PROVIDERS = "org.apache.zookeeper.server.auth"
_NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """TLS on the only client port; no port has plain text.

    ``key_store`` is a PEM file with the server's private key and certificate, ``trust_store`` one with the authorities
    of the clients, and of the server itself, which is asked for its state with its own certificate. ``client_auth``
    is ``need``, ``want`` or ``none``. A client's certificate is its identity ``x509:<distinguished name>``.
    """

    key_store: Path
    trust_store: Path
    client_auth: str = "need"

    def properties(self, port: int, address: str) -> dict[str, str]:
        """Lines of the server's configuration file."""
        return {
            "secureClientPort": str(port),
            "secureClientPortAddress": address,
            "serverCnxnFactory": _NETTY,
            "authProvider.x509": f"{_PROVIDERS}.X509AuthenticationProvider",
            "ssl.keyStore.location": str(self.key_store),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(self.trust_store),
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": self.client_auth,
            "ssl.enabledProtocols": "TLSv1.3,TLSv1.2",  # the second is the default of Kafka's brokers
        }

    def context(self) -> ssl.SSLContext:
        """The context of a client on this machine that uses the server's own certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.trust_store)
        context.load_cert_chain(self.key_store)
        return context


@dataclass(frozen=True, slots=True)
class ZooKeeperSasl:
    """SASL DIGEST-MD5: names and passwords of clients. ``required``: other clients are not served at all."""

    users: Mapping[str, str] = field(repr=False)
    required: bool = True

    def properties(self) -> dict[str, str]:
        """Lines of the server's configuration file."""
        return {
            "authProvider.sasl": f"{_PROVIDERS}.SASLAuthenticationProvider",
            "sessionRequireClientSASLAuth": str(self.required).lower(),
        }

    def jaas(self) -> str:
        """The section ``Server`` of the server's JAAS file, which ``java.security.auth.login.config`` names."""
        users = "".join(f"\n    user_{name}={quoted(password)}" for name, password in self.users.items())
        return f"Server {{\n    {_PROVIDERS}.DigestLoginModule required{users};\n}};\n"


def quoted(text: str) -> str:
    """A string of a JAAS file."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
