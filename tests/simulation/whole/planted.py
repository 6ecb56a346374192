"""Bugs on purpose in the real controller: each has to be found by a seed.

Each is of a kind that a real system had. `TABLE` says by subject which report it resembles, and which seed finds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from tests.simulation.whole import (  # noqa: F401 - they register the bugs
    planted_decisions,
    planted_disk,
    planted_node,
    planted_operators,
    planted_past,
    planted_quorum,
)
from tests.simulation.whole.planting import BUGS, LIKELIER

__all__ = ["BUGS", "FOUND", "LIKELIER", "TABLE", "planted"]


@dataclass(frozen=True)
class Row:
    """Of the table.

    :ivar report: of a real system that had such a bug.
    :ivar seed: that finds it, with its options; None: no seed does so far.
    """

    bug: str
    report: str
    seed: int | None = None


TABLE = {
    "what this program had": (
        Row("image_keeps_what_a_snapshot_has_replaced", "etcd 13766: what is applied, and how far, move apart"),
        Row(
            "batch_is_encoded_for_an_offset_that_a_voter_change_takes",
            "KAFKA-17304: the offset of a record is guessed",
            5,
        ),
        Row(
            "mark_of_an_empty_disk_is_forgotten_at_the_second_start",
            "ZOOKEEPER-2325: a server without data takes part",
            9,
        ),
        Row("answer_counts_whatever_it_answers", "etcd 17081: messages that are meant for somebody else", 0),
        Row("voters_are_not_cut_with_the_log", "camunda 57393, canonical/raft 250", 2),
    ),
    "disks: what is durable, and when": (
        Row("log_is_not_fsynced", "Redis-Raft (Jepsen, 2020)", 0),
        Row("renamed_file_is_not_fsynced", "ext4's delayed allocation (2009)", 0),
        Row("renamed_file_is_not_durable_in_its_directory", "Pillai et al., OSDI 2014", 9),
        Row("new_segment_is_not_durable_in_its_directory", "LevelDB: Pillai et al., OSDI 2014", 1),
        Row("full_segment_is_not_fsynced_before_its_successor", "KAFKA-3919", 0),
        Row("checksum_is_not_looked_at_at_the_start", "etcd 5230: torn writes"),
        Row("torn_end_is_not_cut", "etcd 11488: a WAL that nobody can read after a hard reboot"),
        Row("short_write_counts_as_whole", "Alagappan et al., FAST 2018", 0),
        Row("election_state_is_overwritten_in_place", "ZOOKEEPER-2354, ZOOKEEPER-4269", 7),
        Row("failed_fsync_is_tried_again", "PostgreSQL's fsyncgate (2018)", 1),
        Row("what_an_fsync_failed_for_counts_after_a_restart", "Rebello et al., ATC 2020", 9),
        Row("name_of_the_journal_is_not_durable", "Pillai et al., OSDI 2014", 1),
        Row("news_stop_a_controller_whose_disk_is_full", "what this program had", 0),
    ),
    "snapshots, and what is cut together": (
        Row("download_goes_on_with_the_next_snapshot", "KIP-630: each part names its snapshot", 2),
        Row("snapshot_names_no_voters", "canonical/raft 250", 36),
        Row("snapshot_has_its_name_before_it_is_whole", "etcd 10219", 1),
        Row("more_of_the_log_is_dropped_than_a_snapshot_holds", "ZOOKEEPER-1797", 2),
        Row("log_behind_a_newer_snapshot_is_kept", "canonical/raft 199, RedisRaft 43", 23),
        Row("epochs_are_not_cut_with_the_log", "KAFKA-10706", 54),
        Row("index_is_not_cut_with_the_log", "Kafka's index files that are found corrupted", 2),
    ),
    "consensus": (
        Row("half_is_a_majority", "Elasticsearch 2488", 0),
        Row("everybody_has_to_answer", "no report is known", 0),
        Row("vote_without_log_check", "MongoDB's protocol version 0 (Jepsen, 2015)", 25),
        Row("vote_is_not_persisted", "ZOOKEEPER-2307", 0),
        Row("stale_candidates_get_votes_of_this_epoch", "Raft, figure 2, broken", 2),
        Row("leader_counts_unsynced", "Kafka 3.9 does so", 0),
        Row("follower_tells_what_is_not_on_its_disk", "NATS JetStream (Jepsen, 2025)", 0),
        Row("records_of_older_epochs_are_committed_by_counting", "LogCabin 44, canonical/raft 220", 0),
        Row("observers_count_for_a_majority", "no report is known; etcd and TiKV have learners, too", 0),
        Row("logs_are_compared_by_their_length_alone", "KAFKA-1211 (KIP-101)", 1),
        Row("truncation_goes_too_far", "KAFKA-7897", 1),
        Row("follower_waits_for_its_leader_for_ever", "KAFKA-15489", 5),
        Row("voters_change_before_the_last_change_is_committed", "Raft's membership bug (Ongaro, July 2015)", 5),
        Row("answer_of_the_leader_leaves_the_evidence", "what this program had", 6),
        Row("refused_port_alone_is_evidence", "what this program had", 2),
        Row("leader_without_a_majority_leads_on", "KAFKA-15489: a leader that is cut off does not resign", 2),
    ),
    "what is told, and the image": (
        Row("answer_before_commit", "Elasticsearch 20031", 0),
        Row("whoever_waits_hears_of_success_when_the_leadership_is_lost", "RethinkDB 5289, redpanda 3003", 1),
        Row("image_is_published_before_it_is_committed", "Elasticsearch 20031: dirty reads", 2),
        Row("image_is_not_cut_with_the_log", "NuRaft 185: a rollback beside what is applied", 0),
        Row("image_of_one_controller_is_wrong", "etcd's data inconsistency of 3.5 (2022)", 0),
        Row("image_is_changed_in_place", "no report is known", 0),
        Row("boot_forgets_the_last_batch", "KAFKA-14857", 4),
        Row("leader_of_an_older_epoch_is_told", "KAFKA-9212: a stale epoch is told", 11),
        Row("high_watermark_that_is_told_is_the_logs_end", "Elasticsearch 20031", 0),
        Row("validation_writes", "what this program had", 0),
        Row("followers_are_told_that_all_is_committed", "Elasticsearch 20031: dirty reads", 0),
    ),
    "decisions": (
        Row("ids_are_given_by_the_committed_image", "KAFKA-15552: blocks of producer ids that are given twice", 0),
        Row("broker_epoch_is_given_again", "KIP-903: a broker that has started again is taken for itself", 2),
        Row("topic_id_is_given_again", "no report is known", 4),
        Row("isr_is_changed_by_who_knows_an_old_one", "KIP-903: facts about a replica that are stale", 4),
        Row("partition_is_led_by_who_is_not_in_sync", "no report is known", 5),
        Row("broker_that_a_leader_never_heard_stays_unfenced", "no report is known", 1),
        Row("broker_stays_fenced", "no report is known", 0),
        Row("lock_is_taken_by_two", "locks of etcd 3.4 (Jepsen, 2020)", 2),
    ),
    "the life of the process": (
        Row("timer_is_not_set_again", "KAFKA-16563", 19),
        Row("timer_fires_again_and_again", "KAFKA-10134", 0),
        Row("listener_is_not_closed", "ports that are still in use after a stop, in many systems", 0),
        Row("stop_leaves_a_task", "leaked threads, in many systems", 0),
        Row("stop_leaves_a_thread", "leaked threads, in many systems", 0),
        Row("journal_stays_open", "leaked descriptors, in many systems", 0),
        Row("charge_is_not_given_back", "KAFKA-19763: memory that is held for what is over", 0),
        Row("reply_is_never_forgotten", "KAFKA-19389: a purgatory that grows", 0),
    ),
    "recovery of a lost majority": (
        Row("given_up_are_told_the_epoch", "what this program had", 0),
        Row("given_up_are_not_refused", "Kafka has no recovery that could refuse them", 0),
    ),
}
FOUND = {row.bug: row.seed for rows in TABLE.values() for row in rows if row.seed is not None}
"""Run again in ``make test-all``."""


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Have a bug while the context lasts; None: none."""
    with ExitStack() as stack:
        for target, attribute, replacement in BUGS[name]() if name else ():
            stack.enter_context(patch.object(target, attribute, replacement))
        yield
