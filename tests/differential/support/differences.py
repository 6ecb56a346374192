"""Where we decide otherwise than a stock controller on purpose, and why. All of it is here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from migrator.wire.api_versions import OUR_FEATURE
from migrator.wire.schemas import VOTE

DIFFERENCES: Final[Mapping[str, str]] = {
    "the last directory fails": (
        "A registration change that changes nothing, as the list of directories that remain is empty: "
        "stock writes it in version 2, we in the lowest version that can say it."
    ),
    "an ACL with an unknown element": (
        "Stock hangs up when an element is 0 (unknown), and answers UNKNOWN_SERVER_ERROR to everything in the request "
        "when one is 1 (any, or a pattern that matches); we answer INVALID_REQUEST, as both do for other numbers."
    ),
    "a filter of ACLs with an unknown element": "Stock hangs up; we answer INVALID_REQUEST.",
    "a quota that is no number": "Stock takes NaN as a limit, and no broker can apply it; we answer INVALID_REQUEST.",
    "an empty salted password": (
        "Stock fails in its HMAC, and answers UNKNOWN_SERVER_ERROR; we answer UNACCEPTABLE_CREDENTIAL."
    ),
    "an owner of a token without a type": (
        "Stock fails on the null, and answers UNKNOWN_SERVER_ERROR; we take the owner for a user."
    ),
    "an interval of client metrics that is no number": (
        "Stock answers UNKNOWN_SERVER_ERROR, as it does not expect the exception; we answer INVALID_REQUEST."
    ),
    "a snapshot that cannot be had": (
        "Stock fails when it measures the records that are not there, and answers UNKNOWN_SERVER_ERROR without the "
        "error that it had found; we answer that one (SNAPSHOT_NOT_FOUND, FENCED_LEADER_EPOCH, ...)."
    ),
    "a fetch of the leader's own": (
        "Stock does not expect one, and answers UNKNOWN_SERVER_ERROR; we answer INVALID_REQUEST."
    ),
    "a fetch of no bytes": (
        "Stock passes over the bounds of a Fetch and sends what it likes; we keep to them, and send one batch at least."
    ),
    "what a leader says to itself": (
        "BeginQuorumEpoch and EndQuorumEpoch in the name of the node that they are sent to: stock finds nothing wrong, "
        "we answer INVALID_REQUEST."
    ),
    "log levels of a Java process": (
        "Stock describes and alters the levels of its loggers (resource type 8); we have none of them, and answer "
        "INVALID_REQUEST."
    ),
    "a resource is described twice": (
        "Stock describes it as often as it is named; we answer INVALID_REQUEST, as both do when it is altered twice."
    ),
    "documentation of keys": "Stock sends Kafka's sentences about each key when it is asked to; we send none.",
    "more partitions than one request may create": (
        "Above 10,000 stock answers UNKNOWN_SERVER_ERROR, and creates the first 10,000; we answer POLICY_VIOLATION, "
        "and create none."
    ),
    "a topic with configurations is deleted": (
        "We delete its configurations by records of their own, before the topic's: brokers of Kafka that restart would "
        "else give them to the next topic of that name."
    ),
    "a number that is none, or in other digits": (
        "Stock takes what Java parses: NaN as a ratio, and digits of other scripts. We take 0 to 9 only: what one "
        "reader of the log cannot parse ends that reader."
    ),
    "a negative id of a node": (
        "Stock registers it; a partition that such a broker leads has the leader -1, which means none. We answer "
        "INVALID_REQUEST, and know of none that could be removed."
    ),
    "users of an API that is not served": (
        "Both answer UNKNOWN_SERVER_ERROR; stock repeats it for each user, whose names it forgets."
    ),
}
"""By the label of a step."""

OUR_FEATURES: Final[Mapping[str, str]] = {
    OUR_FEATURE: (
        "ApiVersions names it, by which controllers of this project know each other; "
        "brokers and clients pass over features that they do not know."
    ),
}
"""What our ApiVersions has in addition, everywhere."""

OUR_VERSIONS: Final[Mapping[int, str]] = {
    VOTE: "We serve version 2 too, by which controllers of ours and of Kafka 4 ask for pre-votes (KIP-996).",
}
"""APIs of which our ApiVersions has a version more."""
