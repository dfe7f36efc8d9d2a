SELECT t.name, t.driver, d.fuel_state FROM (SELECT name, fuel_state FROM diagnostics [[WHERE time >= '{{low_d}}Z']] LATEST ON time PARTITION BY name) d JOIN tags t ON t.name = d.name
WHERE d.fuel_state < 0.1 AND t.fleet = '{{fleet_latest}}'
