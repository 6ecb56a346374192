"""The work of worker processes: read ZooKeeper, copy it into the log, compare it with an image."""
