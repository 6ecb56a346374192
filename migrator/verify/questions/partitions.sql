-- One row for each partition; `preferred` is its first replica.
SELECT regexp_extract(entity, '^(.*)-[0-9]+$', 1) AS topic, CAST(substring_index(entity, '-', -1) AS int) AS partition,
  replicas, isr, CAST(leader AS int) AS leader, CAST(substring_index(replicas, ',', 1) AS int) AS preferred
FROM (SELECT entity, field, value FROM kraft WHERE kind = 'partition')
PIVOT (max(value) FOR field IN ('replicas' AS replicas, 'isr' AS isr, 'leader' AS leader))
