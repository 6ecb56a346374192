"""The requests that brokers in ZooKeeper mode get from the controller, and one ordered channel to each broker."""
