SELECT l_commitdate, sum(l_quantity) AS s
FROM lineitem
GROUP BY l_commitdate
ORDER BY s DESC LIMIT 100
