-- Seconds of driving without a stop, on average, by truck and day.
WITH st AS (
  SELECT tags_id, date_bin(INTERVAL '10 minutes', time, TIMESTAMP '2000-01-01 00:00:00') AS ten_minutes,
         avg(velocity) > 5 AS driving
  FROM readings
  GROUP BY tags_id, date_bin(INTERVAL '10 minutes', time, TIMESTAMP '2000-01-01 00:00:00')
), prev AS (
  SELECT tags_id, ten_minutes, driving,
         lag(driving) OVER (PARTITION BY tags_id ORDER BY ten_minutes) AS prev_driving
  FROM st
), chg AS (
  SELECT tags_id, ten_minutes AS start_t,
         lead(ten_minutes) OVER (PARTITION BY tags_id ORDER BY ten_minutes) AS stop_t, driving
  FROM prev WHERE driving <> prev_driving
)
SELECT t.name, date_bin(INTERVAL '24 hours', c.start_t, TIMESTAMP '2000-01-01 00:00:00') AS d,
       avg(extract(epoch FROM c.stop_t) - extract(epoch FROM c.start_t)) AS duration_s
FROM tags t JOIN chg c ON t.id = c.tags_id
WHERE t.name IS NOT NULL AND c.driving = true
GROUP BY t.name, date_bin(INTERVAL '24 hours', c.start_t, TIMESTAMP '2000-01-01 00:00:00')
ORDER BY t.name, d
