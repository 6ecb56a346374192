"""How a rollout begins, continues and turns back: looks and refusals first, then the first lines of the journal.

`opening` writes these lines, and checks that 'access' names the right ZooKeeper. `refusals` has what a rollout refuses
before anything changes; `first_level` decides the metadata.version of the controllers.

**What always holds.** A refusal changes nothing. No line is written for a rollout while another one holds the lock.
"""
