-- What changed in the log after offset :since, the first value and the last one, and where ZooKeeper stands.
-- `first` is the log if ZooKeeper has a value that the log had earlier, and ZooKeeper if the log never had its value.
WITH span AS (
  SELECT kind, entity, field, min_by(old, offset) AS old, max_by(new, offset) AS new,
    count(*) AS changes, max(offset) AS offset, max(time) AS time
  FROM changes WHERE offset > :since GROUP BY kind, entity, field
), had AS (
  SELECT kind, entity, field, collect_set(value) AS earlier, bool_or(value IS NULL) AS absent
  FROM history GROUP BY kind, entity, field
)
SELECT kind, entity, field, span.old, span.new, changes, offset, time, zookeeper.value AS zookeeper,
  CASE WHEN zookeeper.value <=> span.new
    OR kind = 'partition' AND field = 'epoch' AND CAST(zookeeper.value AS bigint) >= CAST(span.new AS bigint)
    OR kind = 'producer ids' AND array_contains(split(zookeeper.value, '[|]'), span.new) THEN 'both have it'
    WHEN array_contains(earlier, zookeeper.value) OR zookeeper.value IS NULL AND absent THEN 'the log'
    ELSE 'ZooKeeper' END AS first
FROM span JOIN had USING (kind, entity, field) LEFT JOIN zookeeper USING (kind, entity, field)
ORDER BY offset, kind, entity, field
