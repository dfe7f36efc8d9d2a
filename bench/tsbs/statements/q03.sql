-- Load in relation to capacity, on average, by fleet and model.
SELECT t.fleet, t.model, t.load_capacity, avg(d.avg_load / t.load_capacity) AS avg_load_percentage
FROM tags t JOIN (
  SELECT tags_id, avg(current_load) AS avg_load FROM diagnostics GROUP BY tags_id
) d ON t.id = d.tags_id
WHERE t.name IS NOT NULL
GROUP BY t.fleet, t.model, t.load_capacity
