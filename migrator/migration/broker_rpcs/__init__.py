"""What brokers in ZooKeeper mode are told, and the channels on which they are told."""
