SELECT t.name, t.driver, r.v.1, r.v.2
FROM tags t JOIN (SELECT tags_id, argMax(tuple(longitude, latitude), time) AS v FROM readings
  WHERE tags_id IN (SELECT id FROM tags WHERE fleet = '{{fleet_latest}}') [[AND time >= toDateTime64('{{low_r}}', 6, 'UTC')]] GROUP BY tags_id) r ON r.tags_id = t.id
WHERE t.name IS NOT NULL AND t.fleet = '{{fleet_latest}}'
