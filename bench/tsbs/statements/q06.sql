-- Activity by fleet, model and day: points in ten minutes whose average status is below 1, in days.
SELECT t.fleet, t.model, y.d, sum(y.n) / 144.0 AS daily_activity
FROM tags t JOIN (
  SELECT date_bin(INTERVAL '24 hours', time, TIMESTAMP '2000-01-01 00:00:00') AS d,
         date_bin(INTERVAL '10 minutes', time, TIMESTAMP '2000-01-01 00:00:00') AS ten_minutes,
         tags_id, count(*) AS n
  FROM diagnostics
  GROUP BY date_bin(INTERVAL '24 hours', time, TIMESTAMP '2000-01-01 00:00:00'),
           date_bin(INTERVAL '10 minutes', time, TIMESTAMP '2000-01-01 00:00:00'), tags_id
  HAVING avg(status) < 1
) y ON y.tags_id = t.id
WHERE t.name IS NOT NULL
GROUP BY t.fleet, t.model, y.d
ORDER BY y.d
