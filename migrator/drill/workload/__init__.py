"""The metadata of a drill: `fill` writes them to an empty ZooKeeper, `workload` keeps changing them.

**What always holds.** The options alone decide what `fill` writes. `workload.Ledger` has each acknowledged change, so a
later image can be searched for lost ones; a change without an answer is in doubt, and counts as neither.
"""
