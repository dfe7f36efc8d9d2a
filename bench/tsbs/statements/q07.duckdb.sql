SELECT t.name, t.driver, d.v.x
FROM tags t JOIN (SELECT tags_id, arg_max({'x': current_load}, time) AS v FROM diagnostics [[WHERE time >= TIMESTAMP '{{low_d}}']] GROUP BY tags_id) d ON d.tags_id = t.id
WHERE t.name IS NOT NULL AND d.v.x / t.load_capacity > 0.9 AND t.fleet = '{{fleet_latest}}'
