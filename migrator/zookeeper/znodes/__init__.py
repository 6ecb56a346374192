"""One codec for each family of znodes: bytes <-> values, with Kafka's names, versions and rules. Pure.

`paths` has every path. Each other file has one family, and names the class of Kafka that writes it::

    topic = decode_topic(path, data)    # ZnodeError: path, fault, remedy
    data = encode_topic(topic)          # the bytes that Kafka would write

**What always holds.** A decoder accepts the values that a Kafka broker accepts, and refuses the rest with
`errors.ZnodeError`, which quotes no content. Nothing here connects to ZooKeeper.
"""
