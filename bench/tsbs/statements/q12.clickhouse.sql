SELECT t.name, t.driver, r.longitude, r.latitude
FROM tags t JOIN (SELECT tags_id, longitude, latitude FROM readings
  WHERE tags_id IN (SELECT id FROM tags WHERE name = '{{truck}}') [[AND time >= toDateTime64('{{low_r}}', 6, 'UTC')]] ORDER BY time DESC LIMIT 1) r ON r.tags_id = t.id
WHERE t.name = '{{truck}}'
