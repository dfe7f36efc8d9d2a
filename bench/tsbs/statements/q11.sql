-- Trucks of a fleet whose latest fuel state is below a tenth.
SELECT t.name, t.driver, d.fuel_state
FROM tags t JOIN (
  SELECT tags_id, fuel_state, row_number() OVER (PARTITION BY tags_id ORDER BY time DESC) AS rn
  FROM diagnostics [[WHERE time >= TIMESTAMP '{{low_d}}']]
) d ON d.tags_id = t.id AND d.rn = 1
WHERE t.name IS NOT NULL AND d.fuel_state < 0.1 AND t.fleet = '{{fleet_latest}}'
