-- Values in ZooKeeper that the log never had: a writer that is not the controller made them.
SELECT kind, entity, field, zookeeper.value AS zookeeper, kraft.value AS log
FROM zookeeper
LEFT ANTI JOIN history USING (kind, entity, field, value)
LEFT JOIN kraft USING (kind, entity, field)
WHERE NOT (kind = 'partition' AND field = 'epoch') AND kind <> 'producer ids'
UNION ALL
SELECT kind, entity, field, NULL, kraft.value
FROM kraft LEFT ANTI JOIN zookeeper USING (kind, entity, field)
LEFT ANTI JOIN (SELECT * FROM history WHERE value IS NULL) USING (kind, entity, field)
ORDER BY kind, entity, field
