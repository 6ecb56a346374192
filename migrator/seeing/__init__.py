"""A poller of a cluster's controllers from outside, over the Kafka protocol. Our controllers and Kafka's answer alike.

Every part that watches a quorum uses it: a rollout, a hand-over, and the commands `migrator top` and
`migrator quorum unregister`. `quorum.QuorumEyes` asks all voters and the leader, and reads the committed metadata::

    eyes = QuorumEyes(settings)     # the voters or bootstrap servers, and how to log in
    look = await eyes.look()        # a QuorumLook: who answers, who leads, how far each voter is, the committed image
    if look.seen is None:           # no controller answered; look.unknown has a sentence for the operator
        ...
    await eyes.close()

`controllers` has the values of a look. `quorum_status` makes of a look the status that `migrator top` shows.
`stock_leader` decides whether Kafka's leader writes committed changes to ZooKeeper.

**Contract.** `look` and `catch_up` raise nothing, and are bounded in time and bytes. A look is a value. A `QuorumEyes`
keeps an image of the committed metadata, so each look reads only the records that are new since the look before.

**What always holds.** A fact that no controller has reported is unknown (None or -1), and never counts as good. When
several controllers claim to lead, the one with the highest epoch counts. This room writes nothing, except for
`QuorumEyes.unregister`.
"""
