"""What a server does before it answers: its process, its identity, its sockets, the tables and the log.

``opening`` reads the tables and has the log's tail (``log_tail``) applied to them; ``log_guard`` keeps the server from
writing to a log that is not theirs, or beside another server with its id.
"""
