SELECT t.name, t.driver, d.fuel_state
FROM tags t INNER JOIN LATERAL (SELECT fuel_state FROM diagnostics d WHERE d.tags_id = t.id [[AND time >= TIMESTAMPTZ '{{low_d}}+00']] ORDER BY time DESC LIMIT 1) d ON true
WHERE t.name IS NOT NULL AND d.fuel_state < 0.1 AND t.fleet = '{{fleet_latest}}'
