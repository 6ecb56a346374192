"""A drill's cluster with unmodified Kafka brokers, and the clients that write and read from start to end.

`real_cluster.RealCluster` is the `migrator.drill.cluster.Cluster` with these brokers; `cluster.KafkaCluster` starts and
stops their processes, and `real_cluster.nodes_of` describes them for `migrator rollout`. `traffic.ClientTraffic` runs a
producer, a consumer group and a transactional producer, and its audit counts every record. `image_comparison` compares
brokers with the metadata log.

**What always holds.** A record counts as lost only if its broker had acknowledged it; a transaction without an answer
is in doubt, and may have all of its records or none.
"""
