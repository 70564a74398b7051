"""The fold: the pure state machine that turns the records of the event log into changes of the route table.

It contains leases, the clocks of observed time, expiry, the mass-expiry guard, and the state between two records. The
rules of routes are in ``route``, which imports nothing from here. The Spark job, replay, what-if and the tests run the
fold.
"""
