"""The lock that allows one rollout for each cluster.

`lock.RolloutLock` holds it in up to three places: a file on this host, a znode (`places`), and the metadata of our
quorum (`quorum`). ZooKeeper counts until the migration is over, our quorum from then on, and both while both are there.

**What always holds.** The lock outlives the process that took it; a process with the same rollout id takes it again. A
place is written only on the condition that its content is the one last read. `check` is called before every act: while
it is unknown who has the lock, nothing is done.
"""
