"""How a rollout begins, continues and turns back: looks and refusals first, then the first lines of the journal.

`opening` writes these lines. `refusals` has what a rollout refuses before anything changes; `address` checks that
'access' names the right ZooKeeper; `first_level` decides the metadata.version of the controllers.

**What always holds.** A refusal changes nothing. No line is written for a rollout while another one holds the lock.
"""
