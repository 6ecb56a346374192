"""The scenario of a drill: which steps it takes, and what must hold after each.

`steps.run_scenario` takes a cluster from ZooKeeper to a finished migration, or back from the state that the options
name. `finish` has the steps of the end, `rollback` those of the way back, `reassign` those that replace the voters.

**Contract.** The steps ask no broker of which sort it is: `migrator.drill.cluster.Cluster` has the differences. A check
that fails is noted in the report, and the drill goes on; a condition that does not come in time ends it.
"""
