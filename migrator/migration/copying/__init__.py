"""What worker processes do: read ZooKeeper, copy it into the log, compare it with an image."""
