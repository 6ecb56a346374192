-- Brokers that lead more or fewer partitions than they should, where each partition's first replica should lead it.
SELECT broker, count_if(role = 'leads') AS leads, count_if(role = 'should') AS should_lead,
  count_if(role = 'leads') - count_if(role = 'should') AS difference
FROM (
  SELECT leader AS broker, 'leads' AS role FROM partitions
  UNION ALL SELECT preferred, 'should' FROM partitions
)
GROUP BY broker HAVING difference <> 0
ORDER BY broker
