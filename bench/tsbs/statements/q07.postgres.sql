SELECT t.name, t.driver, d.current_load
FROM tags t INNER JOIN LATERAL (SELECT current_load FROM diagnostics d WHERE d.tags_id = t.id [[AND time >= TIMESTAMPTZ '{{low_d}}+00']] ORDER BY time DESC LIMIT 1) d ON true
WHERE t.name IS NOT NULL AND d.current_load / t.load_capacity > 0.9 AND t.fleet = '{{fleet_latest}}'
