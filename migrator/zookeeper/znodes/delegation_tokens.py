"""``/delegation_token/tokens/<id>``: tokens, without their HMAC. Pure.

Copy, reconcile and `verify` decode with it. Every broker computes the HMAC with ``delegation.token.secret.key``, so the
secret must be the same everywhere. A token that brokers could not read is a `ZnodeError`. Source:
``DelegationTokenManagerZk``.
"""

from __future__ import annotations

import orjson

from migrator.records.metadata import DelegationTokenRecord
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.fields import Fields

_REMEDY = "Delete the znode (its owner has to ask for a new token), or correct it with a ZooKeeper client"


def decode_token(path: str, data: bytes | None) -> DelegationTokenRecord | None:
    """Decode a token; None for a znode without data, which Kafka skips.

    :raises ZnodeError: the data is not a token of version 1 to 3. Times as strings are refused, as by brokers.
    """
    if not data:
        return None
    fields = Fields.parse(path, data, _REMEDY)
    version = fields.version((1, 2, 3))
    token_id = fields.text("tokenId")
    if token_id != paths.name_of(path):
        raise fields.fault("the token id in the data is not the name of the znode")
    owner = _principal(fields, fields.text("owner"))
    return DelegationTokenRecord(
        token_id=token_id,
        owner=owner,
        requester=_principal(fields, fields.text("tokenRequester")) if version == 3 else owner,
        renewers=tuple(_principal(fields, renewer) for renewer in fields.texts("renewers")),
        issue_timestamp=fields.long("issueTimestamp"),
        max_timestamp=fields.long("maxTimestamp"),
        expiration_timestamp=fields.long("expiryTimestamp"),
    )


def encode_token(token: DelegationTokenRecord) -> bytes:
    """Version 3, the principals sanitized."""
    return orjson.dumps(
        {
            "version": 3,
            "owner": paths.sanitize(token.owner),
            "tokenRequester": paths.sanitize(token.requester),
            "renewers": [paths.sanitize(renewer) for renewer in token.renewers],
            "issueTimestamp": token.issue_timestamp,
            "maxTimestamp": token.max_timestamp,
            "expiryTimestamp": token.expiration_timestamp,
            "tokenId": token.token_id,
        }
    )


def encode_token_change(token_id: str) -> bytes:
    """The data of a change notice in ``token_changes``: the token's id."""
    return token_id.encode()


def _principal(fields: Fields, sanitized: str) -> str:
    principal = paths.desanitize(fields.path, sanitized)
    if ":" not in principal:
        raise fields.fault("a principal is not of the form type:name")
    return principal
