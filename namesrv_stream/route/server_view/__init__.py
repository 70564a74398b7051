"""A server's view of the route table: committed rows, and on top of them the events that the server has accepted.

It is a sub-package because neither the fold nor the tables need it. Servers, request processors and the history's
queries for past routes import ``route_view``; the other modules are its parts.
"""
