-- Fuel and load by model when trucks are fast: each reading with the truck's last diagnostic at or before it.
SELECT t.model, count(*) AS readings, avg(d.fuel_state) AS fuel_state, avg(d.current_load) AS current_load
FROM (
  SELECT tags_id, time FROM readings WHERE velocity > 80 AND tags_id IS NOT NULL
) r ASOF JOIN (
  SELECT tags_id, time, fuel_state, current_load FROM diagnostics WHERE tags_id IS NOT NULL
) d ON r.tags_id = d.tags_id AND r.time >= d.time
JOIN tags t ON t.id = r.tags_id
WHERE t.name IS NOT NULL
GROUP BY t.model
