"""Checks both sources before Spark starts. Spark starts slowly, and would find the same faults only at its end.

`migrator verify` calls `inspect`. It reads little: that both sources exist and can be read, and that a metadata
directory is of ZooKeeper's cluster. Each fault is an `OperatorError` that names the source and a remedy. A pass
promises no more than this.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from migrator.config.load import load_settings
from migrator.errors import OperatorError
from migrator.log.errors import storage_errors
from migrator.log.meta_properties import FILE_NAME, read_meta_properties
from migrator.verify.kraft.files import NAME_DIRECTORY, last_of_log, log_directory_of
from migrator.verify.kraft.observed import is_address, observed
from migrator.verify.named import Sources
from migrator.verify.places import place
from migrator.verify.zookeeper.files import data_files, read_tree
from migrator.verify.zookeeper.side import access
from migrator.zookeeper.clusters import read_cluster_id
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import decode_cluster_id

_SIDES = ("zookeeper", "kraft")


def inspect(sources: Sources, begin: Callable[[str], None]) -> None:
    """Check that both sources exist, can be read, and belong to one cluster.

    :param begin: called with the name of each check.
    :raises OperatorError: a check fails, or a source does not answer.
    """
    if sources.archived:
        _inspect_archive(sources.archive or "")
        return
    if sources.zookeeper_files:
        begin("looking at ZooKeeper's files")
        cluster_id = _cluster_id_in_files(sources)
    else:
        begin("asking ZooKeeper for the cluster id")
        options, _ = access(sources.zookeeper, sources.config)
        with ZooKeeperSession(options) as session:
            cluster_id = read_cluster_id(session)
    metadata = sources.metadata or ""
    if is_address(metadata):
        begin("asking the controllers for the end of the log")
        observed(metadata, sources.config).end_offset()
    else:
        begin("looking at the metadata directory")
        _inspect_directory(place(metadata), cluster_id)


def _inspect_directory(directory: Path, cluster_id: str) -> None:
    with storage_errors("cannot read", directory):
        if not directory.is_dir():
            what = "this is a file, not a directory" if directory.exists() else "there is no such directory"
            raise OperatorError(what, where=str(directory), remedy=NAME_DIRECTORY)
    log_directory = log_directory_of(directory)
    formatted = read_meta_properties(log_directory.parent)
    if formatted is not None and formatted.cluster_id != cluster_id:
        raise OperatorError(
            f"this directory is of cluster {formatted.cluster_id}, and ZooKeeper is of cluster {cluster_id}",
            where=str(log_directory.parent / FILE_NAME),
            remedy="Name ZooKeeper and the metadata directory of the same cluster",
        )
    if last_of_log(log_directory).offset == 0:
        raise OperatorError("the metadata log is empty", where=str(log_directory), remedy=NAME_DIRECTORY)


def _cluster_id_in_files(sources: Sources) -> str:
    files = data_files([place(directory) for directory in sources.zookeeper_files])
    chroot, end = _chroot(sources), paths.CLUSTER_ID
    tree = read_tree(files, lambda path: path.endswith(end.encode())).tree
    found = {path.removesuffix(end): znode for path, znode in tree.items()}
    if chroot in found:
        return decode_cluster_id(paths.CLUSTER_ID, found[chroot].data)
    named = " or ".join(f"--chroot {other or '/'}" for other in sorted(found))
    raise OperatorError(
        f"no Kafka cluster is in these files{f' below {chroot}' if chroot else ''}: {end} is missing",
        where=", ".join(sources.zookeeper_files),
        remedy=f"Did you mean {named}?" if named else "Give the dataDir of a ZooKeeper server that Kafka uses",
    )


def _chroot(sources: Sources) -> str:
    if sources.chroot is not None:
        return sources.chroot.rstrip("/")
    return "" if sources.config is None else load_settings(Path(sources.config))[0].zookeeper_chroot


def _inspect_archive(archive: str) -> None:
    if "://" in archive:  # a file system that only Spark knows
        return
    for side in _SIDES:
        with storage_errors("cannot read", Path(archive)):
            if not (Path(archive) / side).is_dir():
                raise OperatorError(
                    f"there are no rows kept here: the folder {side} is missing",
                    where=archive,
                    remedy="Give the directory of an earlier 'migrator verify --parquet', or name both sources",
                )
