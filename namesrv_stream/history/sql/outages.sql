-- When brokers, and all brokers of a broker name or of a cluster, were down.
SELECT o.*
FROM outages o
ORDER BY o.begin_ms, o.scope, o.name, o.broker_addr
