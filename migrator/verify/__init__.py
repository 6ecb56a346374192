"""The comparison of ZooKeeper with a metadata log, and its verdict: equal, different, or could not tell.

The way of a comparison::

    inspection.inspect    both sources exist, can be read, and belong to one cluster
    zookeeper, kraft      each side becomes canonical rows (`canonical`): kind, entity, field, value
    spark.compare         joins both sides in Spark: counts, and a bounded number of differences
    recheck.Recheck       while ZooKeeper is written, reads again what differed, until each row agrees or surely differs
    verdict.Verdict       the result, with the zxid and the offset at which both sides were seen

An example::

    verdict = verify(VerifyRequest(zookeeper="zk1:2181", directory="/var/lib/metadata"))
    verdict.word, verdict.exit_code

`watch` compares again and again, `history` keeps the verdicts, `page` draws one as HTML. `report` tells the active
controller a verdict, `repair` orders it to reconcile, and `foreign` finds writes of other clients to ZooKeeper.

**Contract.** Both sides are only read; nothing is locked. ZooKeeper is a running ensemble or the files of a server. The
log is a directory, which a controller may be writing to, or it is fetched from running controllers. A source that
cannot be read completely raises an `OperatorError`: then there is no verdict.

**What always holds.** The rows of each side come from code that shares only codecs with the migration, and nothing with
the other side. On a live cluster a row is reported as different only after it was read again and seen to differ at a
known zxid and offset. A row that keeps changing is undecided, and then the verdict is not "equal". A row holds a keyed
hash in place of a secret, and the key is new in each run.
"""
