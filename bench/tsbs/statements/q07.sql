-- Trucks of a fleet whose latest load is above nine tenths of their capacity.
SELECT t.name, t.driver, d.current_load
FROM tags t JOIN (
  SELECT tags_id, current_load, row_number() OVER (PARTITION BY tags_id ORDER BY time DESC) AS rn
  FROM diagnostics [[WHERE time >= TIMESTAMP '{{low_d}}']]
) d ON d.tags_id = t.id AND d.rn = 1
WHERE t.name IS NOT NULL AND d.current_load / t.load_capacity > 0.9 AND t.fleet = '{{fleet_latest}}'
