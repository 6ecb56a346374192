"""Looks at a cluster for a rollout: ZooKeeper, controllers and brokers, all into one `Observation`. Changes nothing.

`observer.ClusterObserver` is the port `migrator.rollout.ports.ClusterProbe`. It asks `zookeeper`, the quorum
(`migrator.seeing`), our leader (`leader_says`) and every broker (`brokers`) at the same time.

**What always holds.** A look raises nothing, and is bounded in time and bytes. What did not answer is unknown and named
in the look, never taken as absent or healthy.
"""
