SELECT sum(l_extendedprice), sum(l_discount), sum(l_tax), sum(l_quantity)
FROM lineitem
WHERE l_shipmode LIKE '%AIR%'
