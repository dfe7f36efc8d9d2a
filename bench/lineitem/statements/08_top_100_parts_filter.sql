SELECT l_partkey, sum(l_quantity) AS s, sum(l_extendedprice), min(l_discount), max(l_discount)
FROM lineitem
WHERE l_shipdate BETWEEN DATE '1996-01-15' AND DATE '1998-03-15'
GROUP BY l_partkey
ORDER BY s DESC LIMIT 100
