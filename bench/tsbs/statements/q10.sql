-- Trucks of a fleet that drove through almost all of four hours.
SELECT t.name, t.driver
FROM tags t JOIN (
  SELECT date_bin(INTERVAL '10 minutes', time, TIMESTAMP '2000-01-01 00:00:00') AS ten_minutes, tags_id
  FROM readings
  WHERE time >= TIMESTAMP '{{q10_from}}' AND time < TIMESTAMP '{{q10_to}}'
  GROUP BY date_bin(INTERVAL '10 minutes', time, TIMESTAMP '2000-01-01 00:00:00'), tags_id
  HAVING avg(velocity) > 1
) r ON t.id = r.tags_id
WHERE t.name IS NOT NULL AND t.fleet = '{{fleet_window}}'
GROUP BY t.name, t.driver
HAVING count(r.ten_minutes) > 22
