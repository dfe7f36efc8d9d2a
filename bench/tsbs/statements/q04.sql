-- Fuel consumption while driving beside the nominal one, by fleet.
SELECT t.fleet, avg(r.fuel_consumption) AS avg_fuel_consumption,
       avg(t.nominal_fuel_consumption) AS projected_fuel_consumption
FROM tags t JOIN readings r ON r.tags_id = t.id
WHERE r.velocity > 1 AND t.fleet IS NOT NULL AND t.nominal_fuel_consumption IS NOT NULL AND t.name IS NOT NULL
GROUP BY t.fleet
