"""ApiVersions: the APIs that this node serves, the cluster's features, and readiness for migration (KIP-35, 584, 866).

`connection` answers requests with it, also before a login; `client` and `voters` read answers of peers. Controllers of
this program recognize each other by the feature `OUR_FEATURE`, which only this program's requests get: other clients
would show a feature that they do not understand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.values import value
from migrator.wire.schemas import API_VERSIONS, VersionRange, build, response_type

ALTERED_FEATURES_VERSION = 4
"""Lower versions leave out features whose range starts at 0: older clients cannot read them (KAFKA-17492)."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


OUR_FEATURE = "migrator.controller"
"""A supported feature by which controllers of this program recognize each other. It is in ApiVersions only, and only in
answers to this program (`is_from_us`)."""
OUR_SOFTWARE = "kraft-migrator"
"""The client software name in requests of this program."""
KNOWS_REOPENING = 2
"""The first level of `OUR_FEATURE` whose controllers know that a finished migration may be reopened."""
OUR_FEATURE_RANGE = VersionRange(1, KNOWS_REOPENING)


@value
class Features:
    """The changing part of the answer.

    ``supported`` ranges are this node's, ``finalized`` levels the cluster's at offset ``epoch`` (-1 unknown);
    ``zk_migration_ready`` says that this controller runs with the migration enabled.
    """

    supported: Mapping[str, VersionRange]
    finalized: Mapping[str, int]
    epoch: int = -1
    zk_migration_ready: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether these are the features of this program's controllers."""
        return OUR_FEATURE in self.supported

    @property
    def knows_reopening(self) -> bool:
        """Whether these are the features of a release that knows a reopened migration."""
        return self.is_ours and self.supported[OUR_FEATURE].max >= KNOWS_REOPENING


NO_FEATURES = Features({}, {})


def api_versions_response(version: int, apis: Mapping[int, VersionRange], features: Features) -> Any:
    """The answer to a valid request of that version."""
    return build(
        response_type(API_VERSIONS, version),
        api_keys=_api_keys(apis),
        supported_features=tuple(
            {"name": name, "min_version": known.min, "max_version": known.max}
            for name, known in sorted(features.supported.items())
            if known.min > 0 or version >= ALTERED_FEATURES_VERSION
        ),
        finalized_features_epoch=features.epoch,
        finalized_features=tuple(
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in sorted(features.finalized.items())
            if level
        ),
        zk_migration_ready=features.zk_migration_ready,
    )


def is_from_us(request: Any) -> bool:
    """Whether the request is from this program. Other clients, such as kafka-features, would show the feature that only
    this program understands."""
    return bool(request.__version__ >= 3 and request.client_software_name == OUR_SOFTWARE)


def for_others(features: Features) -> Features:
    """The features without `OUR_FEATURE`."""
    return replace(features, supported={n: known for n, known in features.supported.items() if n != OUR_FEATURE})


def unsupported_version_response(apis: Mapping[int, VersionRange]) -> Any:
    """The answer to an unknown version: version 0 with error 35 and the range of ApiVersions, which the peer needs."""
    known = {API_VERSIONS: apis[API_VERSIONS]}
    return build(response_type(API_VERSIONS, 0), error_code=ErrorCode.unsupported_version, api_keys=_api_keys(known))


def request_is_valid(request: Any) -> bool:
    """Whether the client's software name and version, sent from version 3 on, are well formed (KIP-511)."""
    if request.__version__ < 3:
        return True
    names = request.client_software_name, request.client_software_version
    return all(_SOFTWARE.fullmatch(name) for name in names)


def invalid_request_response(version: int) -> Any:
    """The answer to a request that `request_is_valid` refuses."""
    return build(response_type(API_VERSIONS, version), error_code=ErrorCode.invalid_request)


def parse_api_versions(response: Any) -> tuple[Mapping[int, VersionRange], Features]:
    """The APIs that a peer serves, and its features."""
    apis = {key.api_key: VersionRange(key.min_version, key.max_version) for key in response.api_keys}
    if response.__version__ < 3:
        return apis, NO_FEATURES
    return apis, Features(
        supported={key.name: VersionRange(key.min_version, key.max_version) for key in response.supported_features},
        finalized={key.name: key.max_version_level for key in response.finalized_features},
        epoch=response.finalized_features_epoch,
        zk_migration_ready=response.zk_migration_ready,
    )


def _api_keys(apis: Mapping[int, VersionRange]) -> tuple[dict[str, int], ...]:
    return tuple(
        {"api_key": key, "min_version": served.min, "max_version": served.max} for key, served in sorted(apis.items())
    )
