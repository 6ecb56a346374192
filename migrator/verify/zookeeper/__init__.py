"""ZooKeeper: its servers, or the files that they leave; and their canonical rows."""
