-- Breakdowns by model: ten minutes with status 0 at least half of the time, after ten minutes without.
WITH b AS (
  SELECT date_bin(INTERVAL '10 minutes', time, TIMESTAMP '2000-01-01 00:00:00') AS ten_minutes, tags_id,
         avg(CASE WHEN status = 0 THEN 1.0 ELSE 0.0 END) >= 0.5 AS broken_down
  FROM diagnostics
  GROUP BY date_bin(INTERVAL '10 minutes', time, TIMESTAMP '2000-01-01 00:00:00'), tags_id
), n AS (
  SELECT ten_minutes, tags_id, broken_down,
         lead(broken_down) OVER (PARTITION BY tags_id ORDER BY ten_minutes) AS next_broken_down
  FROM b
)
SELECT t.model, count(*) AS breakdowns
FROM tags t JOIN n ON t.id = n.tags_id
WHERE t.name IS NOT NULL AND n.broken_down = false AND n.next_broken_down = true
GROUP BY t.model
