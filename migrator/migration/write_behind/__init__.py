"""Writes to ZooKeeper what the log holds, behind the log. Pure."""
