-- Partitions that had fewer replicas in sync than min.insync.replicas, after offset :since.
-- The setting of the topic counts, else the default of the cluster, else 1, which is Kafka's default.
WITH isr AS (
  SELECT entity AS partition, concat('topic:', regexp_extract(entity, '^(.*)-[0-9]+$', 1)) AS topic,
    value AS isr, begins, began, ends, ended
  FROM history WHERE kind = 'partition' AND field = 'isr' AND value IS NOT NULL
), setting AS (
  SELECT entity, value, begins, began, ends, ended
  FROM history WHERE kind = 'config' AND field = 'min.insync.replicas'
), joined AS (
  SELECT partition, isr, CAST(coalesce(own.value, common.value, '1') AS int) AS min_insync_replicas,
    greatest(isr.begins, own.begins, common.begins) AS begins, greatest(isr.began, own.began, common.began) AS began,
    least(isr.ends, own.ends, common.ends) AS ends, least(isr.ended, own.ended, common.ended) AS ended
  FROM isr
  LEFT JOIN setting AS own ON own.entity = topic
  LEFT JOIN setting AS common ON common.entity = 'broker:'
)
SELECT * FROM joined
WHERE size(split(isr, ',')) < min_insync_replicas AND (ends IS NULL OR ends > begins AND ends > :since)
ORDER BY partition, begins
