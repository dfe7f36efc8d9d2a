SELECT t.model, count(*) AS readings, avg(r.fuel_state) AS fuel_state, avg(r.current_load) AS current_load
FROM (
  SELECT r.name AS name, d.time AS measured, d.fuel_state AS fuel_state, d.current_load AS current_load
  FROM (SELECT time, name FROM readings WHERE velocity > 80 AND name IS NOT NULL) r
  ASOF JOIN (SELECT time, name, fuel_state, current_load FROM diagnostics WHERE name IS NOT NULL) d ON (name)
) r JOIN tags t ON t.name = r.name
WHERE r.measured IS NOT NULL
GROUP BY t.model
