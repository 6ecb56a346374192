"""What only a controller of ZooKeeper's days says: LeaderAndIsr, UpdateMetadata and StopReplica to its brokers."""
