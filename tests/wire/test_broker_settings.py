"""Settings of brokers, as real brokers answer for themselves and for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

from migrator.errors import PeerError
from migrator.wire.broker_settings import BrokerConfigs, Refused, describe_broker
from migrator.wire.client import KafkaConnection
from migrator.wire.schemas import DESCRIBE_CONFIGS, VersionRange, build, response_type


class Broker:
    """Answers for every broker the same."""

    def __init__(self, error: ErrorCode, configs: Sequence[Mapping[str, object]] = ()) -> None:
        self.apis = {DESCRIBE_CONFIGS: VersionRange(0, 4)}
        self.error = error
        self.configs = tuple(configs)

    async def request(self, request: Any) -> Any:
        (asked,) = request.resources
        result = {
            "error_code": self.error,
            "error_message": None,
            "resource_type": asked.resource_type,
            "resource_name": asked.resource_name,
            "configs": self.configs,
        }
        return build(response_type(DESCRIBE_CONFIGS, request.__version__), results=(result,))


async def test_who_answers_for_another_broker_is_not_that_broker() -> None:
    """A broker that is asked for another one refuses so; its address may have become another's."""
    with pytest.raises(PeerError, match="another broker answers"):
        await describe_broker(cast("KafkaConnection", Broker(ErrorCode.invalid_request)), 1, ["process.roles"])


async def test_who_may_not_be_asked_is_there() -> None:
    error = ErrorCode.cluster_authorization_failed
    found = await describe_broker(cast("KafkaConnection", Broker(error)), 1, ["process.roles"])
    assert found == Refused("cluster_authorization_failed")


async def test_a_dynamic_setting_is_told_apart_also_if_it_is_as_the_file() -> None:
    def config(name: str, source: int, in_file: str) -> Mapping[str, object]:
        return {
            "name": name,
            "value": "here",
            "read_only": False,
            "config_source": source,
            "is_sensitive": False,
            "synonyms": ({"name": name, "value": in_file, "source": 4},),
        }

    configs = [config("own", 2, "here"), config("of.all", 3, "there"), config("static", 4, "here")]
    broker = Broker(ErrorCode.none, configs)
    found = await describe_broker(cast("KafkaConnection", broker), 1, ["own", "of.all", "static"])
    assert isinstance(found, BrokerConfigs)
    assert found.dynamic == {"own": "here", "of.all": "here"}
    assert found.in_file == {"own": "here", "of.all": "there", "static": "here"}
