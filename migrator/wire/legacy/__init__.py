"""The requests of a ZooKeeper-era controller to its brokers: LeaderAndIsr, UpdateMetadata and StopReplica."""
