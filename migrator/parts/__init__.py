"""Real ZooKeeper and real Kafka as child processes of this one, and other parts that tests, drill and rehearsal need.

`zookeeper.EmbeddedZooKeeper` and `kafka.StockNode` are servers; `java` finds Java and the jars in pyspark, `kafka_jars`
fetches the jars of a Kafka release and checks them. `certificates` makes throw-away certificates,
`usage` measures processes. An example::

    with EmbeddedZooKeeper(directory / "zookeeper") as server:
        kafka = KafkaRelease("3.9.1").fetch()
        node = kafka.node("broker-1", directory / "broker-1", {"zookeeper.connect": server.hosts, ...})

**Contract.** All calls block; a caller on an event loop uses a thread. A server that does not start is an
`OperatorError` with the last lines of its output. Data stay in their directory, so a server can start again.

**What always holds.** No child outlives the process that started it, also after ``kill -9`` (`processes`). ZooKeeper
listens on 127.0.0.1 only, and keeps its port while it is down. No jar of Kafka is used without the expected SHA-256.
"""
