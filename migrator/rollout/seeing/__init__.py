"""How a cluster is looked at: ZooKeeper, controllers and brokers. Changes nothing."""
