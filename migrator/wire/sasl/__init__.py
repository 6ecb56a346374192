"""SASL over Kafka frames: PLAIN, SCRAM, delegation tokens and OAUTHBEARER, both sides.

The exchanges and the server's state are without I/O; `KeySet`, `https` and `login` fetch keys and tokens from an
identity provider. Messages are KIP-43's and KIP-152's: SaslHandshake names the mechanism, SaslAuthenticate carries its
tokens.
"""

from migrator.wire.sasl.exchange import (
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    SCRAM_HASHES,
    Authenticated,
    AuthenticationError,
    ClientExchange,
    NotReadyError,
    ServerExchange,
    SessionExpiredError,
)
from migrator.wire.sasl.scram import NoAccounts, ScramAccount, ScramAccounts, ScramClient, scram_credential
from migrator.wire.sasl.server import LoginFailure, SaslServer

__all__ = [
    "MECHANISMS",
    "OAUTHBEARER",
    "PLAIN",
    "SCRAM_HASHES",
    "Authenticated",
    "AuthenticationError",
    "ClientExchange",
    "LoginFailure",
    "NoAccounts",
    "NotReadyError",
    "SaslServer",
    "ScramAccount",
    "ScramAccounts",
    "ScramClient",
    "ServerExchange",
    "SessionExpiredError",
    "scram_credential",
]
