SELECT t.name, t.driver, d.v.1
FROM tags t JOIN (SELECT tags_id, argMax(tuple(fuel_state), time) AS v FROM diagnostics
  WHERE tags_id IN (SELECT id FROM tags WHERE fleet = '{{fleet_latest}}') [[AND time >= toDateTime64('{{low_d}}', 6, 'UTC')]] GROUP BY tags_id) d ON d.tags_id = t.id
WHERE t.name IS NOT NULL AND d.v.1 < 0.1 AND t.fleet = '{{fleet_latest}}'
