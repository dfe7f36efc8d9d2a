SELECT t.model, count(*) AS readings, avg(d.fuel_state) AS fuel_state, avg(d.current_load) AS current_load
FROM readings r
JOIN LATERAL (
  SELECT fuel_state, current_load FROM diagnostics d
  WHERE d.tags_id = r.tags_id AND d.time <= r.time ORDER BY d.time DESC LIMIT 1
) d ON true
JOIN tags t ON t.id = r.tags_id
WHERE r.velocity > 80 AND t.name IS NOT NULL
GROUP BY t.model
