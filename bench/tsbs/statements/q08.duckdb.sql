SELECT t.name, t.driver, r.v.lon, r.v.lat
FROM tags t JOIN (SELECT tags_id, arg_max({'lon': longitude, 'lat': latitude}, time) AS v FROM readings [[WHERE time >= TIMESTAMP '{{low_r}}']] GROUP BY tags_id) r ON r.tags_id = t.id
WHERE t.name IS NOT NULL AND t.fleet = '{{fleet_latest}}'
