"""The files of a rollout: what it reads, writes and keeps on the hosts of nodes, and in its own directory.

`property_files` makes a node's file for a step, and names its backups. `examined` gives preflight
copies of all property files. `identities` and `old_metadata_log` deal with files in a broker's log directories that
would keep it from starting or registering. `archive` keeps verdicts, outputs and the metadata log.

**What always holds.** A file is replaced only if it has the expected digest, and its first content stays as a backup.
Copies for preflight are in a directory that only the user of the service may enter, and are removed.
"""
