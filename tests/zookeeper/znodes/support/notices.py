"""Reads the change notices that the product only writes, so that tests can compare what stock wrote and what we write.

Source: ``kafka.zk.ZkAclChangeStore``, ``kafka.zk.ConfigEntityChangeNotificationZNode``, ``DelegationTokenManagerZk``.
"""

from __future__ import annotations

from migrator.records.acl_codes import PatternType, ResourceType
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import ResourcePattern
from migrator.zookeeper.znodes.fields import Fields, utf8

REMEDY = "Delete the notice"


def decode_acl_change(path: str, data: bytes | None) -> ResourcePattern:
    if path.startswith(paths.LITERAL_ACL_CHANGES):
        kind, _, name = utf8(path, data, REMEDY).partition(":")
        return ResourcePattern(ResourceType[kind], name, PatternType.LITERAL)
    fields = Fields.parse(path, data, REMEDY)
    fields.version((1,))
    kind, name, pattern = (fields.text(key) for key in ("resourceType", "name", "patternType"))
    return ResourcePattern(ResourceType[kind], name, PatternType[pattern])


def decode_config_change(path: str, data: bytes | None) -> str:
    """The changed entity, e.g. ``topics/t`` or ``users/a%40b/clients/<default>``; stock writes version 2."""
    fields = Fields.parse(path, data, REMEDY)
    fields.version((2,))
    return fields.text("entity_path")


def decode_token_change(path: str, data: bytes | None) -> str:
    return utf8(path, data, REMEDY)
