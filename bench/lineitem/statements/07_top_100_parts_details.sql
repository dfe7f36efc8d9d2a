SELECT l_partkey, sum(l_quantity) AS s, sum(l_extendedprice), min(l_discount), max(l_discount)
FROM lineitem
GROUP BY l_partkey
ORDER BY s DESC LIMIT 100
