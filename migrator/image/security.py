"""Access control entries, SCRAM credentials and delegation tokens of an image under change.

`builder` replays their records here; snapshots and the copy from ZooKeeper make records of them with the functions
below. A removal of an entry or a credential that does not exist is an `InvariantViolation`, as in Kafka; that of a
token is not.
"""

from __future__ import annotations

from migrator.errors import InvariantViolation
from migrator.image.model import Acl, MetadataImage, ScramCredential, ScramKey
from migrator.image.tracked import TrackedMap
from migrator.records.metadata import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from migrator.records.uuid import Uuid, uuid_to_text
from migrator.values import fields_of


class SecurityBuilder:
    """Replays the records of access control entries, SCRAM credentials and delegation tokens."""

    __slots__ = ("acls", "scram", "tokens")

    def __init__(self, base: MetadataImage) -> None:
        self.acls = TrackedMap(base.acls)
        self.scram = TrackedMap(base.scram)
        self.tokens = TrackedMap(base.tokens)

    def put_acl(self, record: AccessControlEntryRecord) -> None:
        """An access control entry, new or not."""
        fields = fields_of(record)
        self.acls.put(fields.pop("id"), Acl(**fields))

    def remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        """Remove an access control entry, which must exist."""
        if not self.acls.remove(record.id):
            raise InvariantViolation(f"there is no access control entry with id {uuid_to_text(record.id)}")

    def put_scram(self, record: UserScramCredentialRecord) -> None:
        """A user's credential, new or not."""
        self.scram.put(
            ScramKey(record.mechanism, record.name),
            ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations),
        )

    def remove_scram(self, record: RemoveUserScramCredentialRecord) -> None:
        """Remove a user's credential, which must exist."""
        if not self.scram.remove(ScramKey(record.mechanism, record.name)):
            raise InvariantViolation(f"user {record.name!r} has no credential for mechanism {record.mechanism}")

    def put_token(self, record: DelegationTokenRecord) -> None:
        """A delegation token, new or renewed."""
        self.tokens.put(record.token_id, record)

    def remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        """Remove a delegation token. As in Kafka, a missing one is not an error."""
        self.tokens.remove(record.token_id)


def acl_record(acl_id: Uuid, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(id=acl_id, **fields_of(acl))


def scram_record(key: ScramKey, credential: ScramCredential) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(name=key.user, mechanism=key.mechanism, **fields_of(credential))
