-- Each value of each field: from offset `begins` on, before offset `ends`; null where there was no value.
-- `begins` is -1 for what was there before the first change; `ends` is null for what is there now.
WITH leaves AS (
  SELECT kind, entity, field, new AS value, offset AS begins, time AS began,
    lead(offset) OVER leaf AS ends, lead(time) OVER leaf AS ended
  FROM changes WINDOW leaf AS (PARTITION BY kind, entity, field ORDER BY offset)
), first AS (
  SELECT kind, entity, field, min_by(old, offset) AS value, min(offset) AS ends, min_by(time, offset) AS ended
  FROM changes GROUP BY kind, entity, field
)
SELECT * FROM leaves
UNION ALL
SELECT kind, entity, field, value, -1, NULL, ends, ended FROM first
UNION ALL
SELECT kind, entity, field, value, -1, NULL, NULL, NULL FROM kraft LEFT ANTI JOIN first USING (kind, entity, field)
