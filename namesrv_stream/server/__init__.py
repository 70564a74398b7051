"""The process ``serve``: everything with sockets and asyncio. The rules of requests and routes are not here.

``main`` starts a server: ``start`` contains the steps before it answers, and ``core`` connects the components. A
request passes ``net`` and the processors; it reads and changes ``view`` (routes in memory), and its events pass
``gateway`` into the log. ``http`` serves people and programs, among them Prometheus (``server_metrics``). Only ``cli``,
``up`` and ``tools`` may import this package.
"""
