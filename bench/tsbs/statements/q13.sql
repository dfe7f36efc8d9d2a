-- Trucks of a fleet that stood still for ten minutes.
SELECT t.name, t.driver
FROM tags t JOIN readings r ON r.tags_id = t.id
WHERE r.time >= TIMESTAMP '{{q13_from}}' AND r.time < TIMESTAMP '{{q13_to}}'
  AND t.name IS NOT NULL AND t.fleet = '{{fleet_window}}'
GROUP BY t.name, t.driver
HAVING avg(r.velocity) < 1
