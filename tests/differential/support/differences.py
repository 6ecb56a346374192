"""The table of decisions and texts in which this program differs from a stock controller on purpose, with reasons.

Any other difference fails the comparison.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from migrator.values import value
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
    "no time for what is asked": (
        "With a time-out of 0 ms or less, stock does nothing and answers REQUEST_TIMED_OUT, which librdkafka takes for "
        "success; we do what is asked, as brokers in ZooKeeper mode do."
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
    "kraft.version is raised": (
        "Stock 3.9 answers with success, and finalizes a level that changes nothing: its voters stay in the "
        "configuration. We refuse, and name the command that moves them into the log."
    ),
    "users of an API that is not served": (
        "Both answer UNKNOWN_SERVER_ERROR; stock repeats it for each user, whose names it forgets."
    ),
}
"""By the label of a step."""


@value
class Words:
    """Sentences that mean the same. Both are regular expressions of the whole text."""

    stock: str
    ours: str
    why: str

    def fits(self, text: str) -> bool:
        """Whether one of the sides says it so."""
        return re.fullmatch(f"{self.stock}|{self.ours}", text, re.DOTALL) is not None


OUR_WORDS: Final = (
    Words(
        r"Request Request\(processor=.* is not authorized\.",
        r"Request is not authorized\.",
        "Stock prints its connection, its buffers and what else a request of its own consists of; we leave them out.",
    ),
    Words(
        r"This most likely occurs because of a request being malformed .*",
        r"Resource type \d+ is not described here\.",
        "Stock has only the general text of the error; we name what is wrong.",
    ),
    Words(
        r"Excessively large number of partitions per request\.",
        r"Excessively large number of partitions per request\. The operation needs \d+ records; at most 10000 .*",
        "We add the bound and a remedy.",
    ),
    Words(
        r"The version of API is not supported\.",
        r"The version of API is not supported\. Controllers can register from metadata\.version 3\.7-IV0 on\.",
        "We add the remedy.",
    ),
    Words(
        r"Add voter request didn't include the endpoint \(Endpoints\(.*\)\) for the default listener .*",
        r"Add voter request didn't include the endpoint for the default listener .*",
        "Stock prints a Java object; we leave it out.",
    ),
    Words(
        r"The voter id for ReplicaKey\(id=\d+, .*\) is already part of the set of voters \[.*\]\.",
        r"The voter id for \d+@.* is already part of the set of voters \[.*\]\. Remove it before .*",
        "Stock prints Java objects; we add the remedy.",
    ),
    Words(
        r"Cannot remove voter ReplicaKey\(id=\d+, .*\) from the set of voters \[.*\]",
        r"Cannot remove voter \d+@.* from the set of voters \[.*\]\. It is (the only voter|no voter on that disk)\.",
        "Stock prints Java objects, and does not say which of the two reasons it is.",
    ),
    Words(
        r"Aborted add voter operation for since API_VERSIONS returned an error \w+",
        r"Node \d+ does not answer at .*",
        "Stock forgets to name the node, and says neither where nor why.",
    ),
    Words(
        r"Aborted add voter operation for ReplicaKey\(id=\d+, .*\) since it is lagging behind",
        r"Aborted add voter operation for \d+@.* since it is lagging behind",
        "Stock prints a Java object.",
    ),
    Words(
        r"Aborted add voter operation for ReplicaKey\(id=\d+, .*\) since the kraft\.version range .*",
        r"Aborted add voter operation for \d+@.* since the kraft\.version range .*",
        "Stock prints a Java object.",
    ),
    Words(
        r"Request timed out waiting for voters to commit the latest voter change at Optional\[\d+\] with HWM \d+",
        r"Request timed out waiting for voters to commit the latest voter change at \d+ with HWM \d+",
        "Stock prints a Java object.",
    ),
    Words(
        r"Invalid update version 1 for feature kraft\.version\. Broker 5 does not support this feature\.",
        r"Invalid update version 1 for feature kraft\.version\. Broker 1 does not support this feature\.",
        "Stock names the first broker of a hash table, we the one with the lowest id.",
    ),
)
"""Where our error messages are others than stock's on purpose. All other messages are stock's, word by word."""


def in_common(text: str) -> str:
    """A sentence that is ours on purpose is called by the number of its row."""
    number = next((n for n, row in enumerate(OUR_WORDS) if row.fits(text)), None)
    return text if number is None else f"row {number} of the table of words"


OUR_VERSIONS: Final[Mapping[int, str]] = {
    VOTE: "We serve version 2 too, by which controllers of ours and of Kafka 4 ask for pre-votes (KIP-996).",
}
"""APIs of which our ApiVersions has a version more."""
