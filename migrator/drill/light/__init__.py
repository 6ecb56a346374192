"""A drill's cluster with light brokers: they speak the Kafka protocol, hold no records, and start at once.

`cluster.LightCluster` is the `migrator.drill.cluster.Cluster` with these brokers. `broker.LightBroker` behaves towards
controllers as a Kafka broker does: in ZooKeeper mode with `metadata_cache` and `replicas`, in KRaft mode with
`log_follower`; `broker_session` registers it in ZooKeeper, and `isr_keeper` changes ISRs.

**What always holds.** A light broker refuses what a Kafka broker refuses, and notes each request that would harm one
(`LightBroker.violations`).
"""
