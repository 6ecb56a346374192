"""Preflight: checks before a migration, of ZooKeeper, property files, brokers and this machine.

First `gather` collects all facts into one value, `evidence.Evidence`. Then `check.run_checks` judges it by the table of
checks (`table`, from the files of `checks`)::

    evidence = gather(PreflightRequest(controllers=(path,)), tell=print)
    report = run_checks(CHECKS, evidence, Concerns.OURS)  # findings, blockers first; what could not be looked at

`reading` and its helpers (`census`, `spellings`, `permissions`) read ZooKeeper, `files` reads property files, `host`
and `asking` look at this machine and the brokers. `repair` is a separate command: it
writes lost partition states again, as `lost_states` decides.

**What always holds.** A check is a pure function of the evidence. Gathering writes nothing, except that permissions are
tried by operations that cannot succeed. A source that could not be read is named in `Evidence.unknown`; a check that
needs it never passes. No value of a secret gets into a finding.
"""
