-- Latest position of one truck.
SELECT t.name, t.driver, r.longitude, r.latitude
FROM tags t JOIN readings r ON r.tags_id = t.id
WHERE t.name = '{{truck}}' [[AND r.time >= TIMESTAMP '{{low_r}}']]
ORDER BY r.time DESC LIMIT 1
