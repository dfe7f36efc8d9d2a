SELECT l_partkey, sum(l_quantity) AS s
FROM lineitem
GROUP BY l_partkey
ORDER BY s DESC LIMIT 100
