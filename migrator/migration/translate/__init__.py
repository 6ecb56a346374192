"""ZooKeeper's metadata <-> the image. Pure: a `source.ZkSource` is read, and operations are returned, not performed."""
