"""The view: what a server knows, how it follows the tables, and queries about both; it contains no HTTP.

``commit_applier`` applies the job's commits, and only ``served_view`` changes the routes. The other modules answer
queries: ``served_state`` (comparison of servers), ``fleet`` (brokers), ``recent_events`` (what happened to them),
``follower`` (committed changes from any position, in order and without gaps; the newest ``rows`` come from the ``feed``
in memory, older ones from the tables). Only the ``server`` package may import it.
"""
