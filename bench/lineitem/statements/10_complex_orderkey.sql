SELECT sum(l_extendedprice) AS s
FROM lineitem
GROUP BY l_orderkey
ORDER BY s DESC LIMIT 100
