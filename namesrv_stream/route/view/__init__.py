"""The view of one server: committed rows, and on top of them the events that the server has accepted.

It is the counterpart of ``fold``: both apply events with the rules of ``interpretation``, but a view measures no time
and removes no broker that did not unregister.
"""
