-- Hours driven a day, on average, by driver.
WITH ten AS (
  SELECT date_bin(INTERVAL '10 minutes', time, TIMESTAMP '2000-01-01 00:00:00') AS ten_minutes, tags_id
  FROM readings
  GROUP BY date_bin(INTERVAL '10 minutes', time, TIMESTAMP '2000-01-01 00:00:00'), tags_id
  HAVING avg(velocity) > 1
), daily AS (
  SELECT date_bin(INTERVAL '24 hours', ten_minutes, TIMESTAMP '2000-01-01 00:00:00') AS d, tags_id,
         floor(count(*) / 6.0) AS hours
  FROM ten
  GROUP BY date_bin(INTERVAL '24 hours', ten_minutes, TIMESTAMP '2000-01-01 00:00:00'), tags_id
)
SELECT t.fleet, t.name, t.driver, avg(d.hours) AS avg_daily_hours
FROM daily d JOIN tags t ON t.id = d.tags_id
GROUP BY t.fleet, t.name, t.driver
