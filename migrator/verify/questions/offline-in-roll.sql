-- Partitions that have no leader while one broker restarts: no other replica is in sync.
SELECT topic, partition, isr AS broker, replicas,
  CASE WHEN leader = -1 THEN 'has no leader now'
    WHEN replicas LIKE '%,%' THEN 'the other replicas are not in sync'
    ELSE 'has one replica' END AS why
FROM partitions WHERE isr NOT LIKE '%,%'
ORDER BY topic, partition
