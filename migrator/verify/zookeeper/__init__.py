"""ZooKeeper, from its servers or from their files, and its canonical rows."""
