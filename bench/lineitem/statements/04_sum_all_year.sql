SELECT extract(year FROM l_shipdate) AS y, sum(l_extendedprice), sum(l_discount), sum(l_tax), sum(l_quantity)
FROM lineitem
GROUP BY extract(year FROM l_shipdate)
