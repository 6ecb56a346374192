"""ZooKeeper's metadata <-> the image. Pure: a `ZkSource` is read, and operations are returned, not performed."""
