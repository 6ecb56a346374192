"""The rehearsal: a migration up to dual-write into a separate directory, without a quorum and without a write.

It reads a live ZooKeeper, makes the log and the snapshot that the migration would make, compares them with ZooKeeper
(Spark), lets a stock Kafka controller load them, and forecasts the times of the migration::

    report = await rehearse(request, progress=print)  # log, snapshot and report are in request.directory
    report.outcome, report.blockers, report.forecast

`rehearse` drives it. `read_only_zookeeper` reads, `local_log` writes the log, `stock` starts Kafka's controller,
`forecast` has the model of the times (docs/rehearse.md), and `report` the result and the verdict. The copy itself is
the migration's own code (`migrator.migration.copying`). `way_back` rehearses the way back of a finished migration.

**What always holds.** ZooKeeper is only read. The directory was new or empty. Faults of the cluster are in the report;
an `OperatorError` means that the rehearsal could not be carried out.
"""
