"""Throw-away clusters on one machine, and the whole migration on them: `migrator drill`.

`run.run_drill` runs a drill from an empty directory to a report::

    place.made                  the directory, locked for this drill
    LightCluster, RealCluster   ZooKeeper, our controllers, and light or real brokers (`cluster.Cluster`)
    scenario.steps              the steps: fill, migrate, dual-write, finish or roll back
    report.DrillReport          what each step did, checked and measured; written as report.json and summary.txt

`kafka` has real brokers and clients, `light` brokers that speak the protocol and hold no data. `workload` fills
ZooKeeper and keeps changing metadata. `security` protects a cluster, and `doors` tries to enter it without permission.
`rollout` lets `migrator rollout` stop and start the nodes. An example::

    run_drill(DrillOptions(...), report, directory, keep=False, kafka=KafkaRelease("3.9.1").fetch())
    report.held

**Contract.** A step notes its checks in the report and goes on; a condition that does not hold in time raises
`DrillFailedError`, which ends the drill. `Cluster` hides the differences between sorts of brokers; the steps are the
same for all.

**What always holds.** No process of a drill outlives it, also after Ctrl-C or ``kill -9``. No other user can read its
files. An outside ZooKeeper, which the operator has to name, is left as it was unless the cluster is kept.
"""
