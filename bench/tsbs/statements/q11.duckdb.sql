SELECT t.name, t.driver, d.v.x
FROM tags t JOIN (SELECT tags_id, arg_max({'x': fuel_state}, time) AS v FROM diagnostics [[WHERE time >= TIMESTAMP '{{low_d}}']] GROUP BY tags_id) d ON d.tags_id = t.id
WHERE t.name IS NOT NULL AND d.v.x < 0.1 AND t.fleet = '{{fleet_latest}}'
