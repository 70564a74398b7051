"""What a server knows, and how it follows the tables.

``following`` takes over the job's commits; ``served_view`` is the only way in which the routes are changed. The others
tell of it: ``served_state`` (to compare servers), ``fleet`` and ``recent_events`` (brokers and what happened to them,
the latter begun by ``stored_events``), ``past_routes`` (out of the history).
"""
