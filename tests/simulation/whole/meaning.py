"""What committed records may mean, whoever has decided them: judged one by one against the image in front of them.

The image comes from the program's own replay. So these rules use what one record says, and no more of the replay than
what was there before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from migrator.image.model import MetadataImage
from migrator.records import metadata as m
from migrator.records.uuid import Uuid
from tests.simulation.whole.breach import check


@dataclass
class Meaning:
    """Of all records that one quorum has committed.

    :ivar topic_ids: that some topic has ever had.
    :ivar incarnations: of broker epochs that were ever given.
    """

    topic_ids: set[Uuid] = field(default_factory=set)
    incarnations: dict[int, Uuid] = field(default_factory=dict)
    producer_ids: int = 0

    @classmethod
    def of(cls, image: MetadataImage) -> Meaning:
        """As far as an image tells: after a recovery, what is lost may be given again."""
        brokers = image.cluster.brokers.values()
        given = {broker.epoch: broker.incarnation_id for broker in brokers}
        return cls(set(image.topics.by_id), given, max(image.producer_ids_next, 0))

    def judge(self, records: Iterable[m.MetadataRecord], before: MetadataImage, after: MetadataImage) -> None:
        """Records of one batch, with the images in front of it and behind it."""
        for record in records:
            match record:
                case m.TopicRecord():
                    is_new = record.topic_id not in self.topic_ids
                    check("a_topic_id_is_never_used_again", is_new, f"{record}")
                    taken = record.name in before.topics.ids
                    check("a_topic_is_created_once", not taken, f"{record}")
                    self.topic_ids.add(record.topic_id)
                case m.RegisterBrokerRecord():
                    known = self.incarnations.setdefault(record.broker_epoch, record.incarnation_id)
                    check("a_broker_epoch_is_given_once", known == record.incarnation_id, f"{record}")
                case m.ProducerIdsRecord():
                    rises = record.next_producer_id > self.producer_ids
                    check("producer_ids_are_given_once", rises, f"{record} after {self.producer_ids}")
                    self.producer_ids = record.next_producer_id
                case m.PartitionChangeRecord():
                    _judge_change(record, before, after)


def _judge_change(record: m.PartitionChangeRecord, before: MetadataImage, after: MetadataImage) -> None:
    topic = after.topics.by_id.get(record.topic_id)
    was = before.topics.by_id.get(record.topic_id)
    if topic is None or was is None:
        return
    now, old = topic.partitions[record.partition_id], was.partitions.get(record.partition_id)
    check("an_isr_is_of_replicas", now.isr and set(now.isr) <= set(now.replicas), f"{record}: {now}")
    is_inside = now.leader < 0 or now.leader in now.isr
    check("a_partition_is_led_by_one_of_its_isr", is_inside, f"{record}: {now}")
    if old is not None:
        rises = now.partition_epoch > old.partition_epoch and now.leader_epoch >= old.leader_epoch
        check("epochs_of_partitions_never_fall", rises, f"{record}: from {old} to {now}")
        may_follow = now.leader in (-1, old.leader) or now.leader in old.isr or record.isr is not None
        check("a_new_leader_was_in_sync", may_follow, f"{record}: from {old} to {now}")
