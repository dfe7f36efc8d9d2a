SELECT t.name, t.driver, r.longitude, r.latitude FROM (SELECT name, longitude, latitude FROM readings [[WHERE time >= '{{low_r}}Z']] LATEST ON time PARTITION BY name) r JOIN tags t ON t.name = r.name
WHERE t.fleet = '{{fleet_latest}}'
