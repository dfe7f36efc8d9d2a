SELECT t.name, t.driver, r.*
FROM tags t INNER JOIN LATERAL (SELECT longitude, latitude FROM readings r WHERE r.tags_id = t.id [[AND time >= TIMESTAMPTZ '{{low_r}}+00']] ORDER BY time DESC LIMIT 1) r ON true
WHERE t.name = '{{truck}}'
