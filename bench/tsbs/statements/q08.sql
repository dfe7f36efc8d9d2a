-- Latest position of each truck of a fleet.
SELECT t.name, t.driver, r.longitude, r.latitude
FROM tags t JOIN (
  SELECT tags_id, longitude, latitude, row_number() OVER (PARTITION BY tags_id ORDER BY time DESC) AS rn
  FROM readings [[WHERE time >= TIMESTAMP '{{low_r}}']]
) r ON r.tags_id = t.id AND r.rn = 1
WHERE t.name IS NOT NULL AND t.fleet = '{{fleet_latest}}'
