"""The sources of a comparison, as the operator named them."""

from __future__ import annotations

from migrator.values import value


@value
class Sources:
    """``zookeeper`` is a connection string, or ``zookeeper_files`` are data directories of a server, with Kafka's
    znodes below ``chroot``. ``metadata`` is a controller's metadata directory, or ``host:port[,...]`` of running
    controllers. ``config`` is a controller's property file: security, and the secret that decodes passwords.

    ``archive``: a directory for the canonical rows of both sides, with keyed hashes in place of secrets. Without any
    other source, the archive is compared.
    """

    zookeeper: str | None = None
    zookeeper_files: tuple[str, ...] = ()
    chroot: str | None = None
    metadata: str | None = None
    config: str | None = None
    archive: str | None = None
    shards: int = 2

    @property
    def archived(self) -> bool:
        """Whether the archive is the only source."""
        return self.archive is not None and not (self.zookeeper or self.zookeeper_files or self.metadata or self.config)

    @property
    def live(self) -> bool:
        """Whether ZooKeeper is read from its servers, so that it may change during the comparison."""
        return not (self.archived or self.zookeeper_files)
