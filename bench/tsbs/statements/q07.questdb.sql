SELECT t.name, t.driver, d.current_load FROM (SELECT name, current_load FROM diagnostics [[WHERE time >= '{{low_d}}Z']] LATEST ON time PARTITION BY name) d JOIN tags t ON t.name = d.name
WHERE d.current_load / t.load_capacity > 0.9 AND t.fleet = '{{fleet_latest}}'
