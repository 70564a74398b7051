"""Programs outside the data path: what operators, analysts and testers run, one sub-package per program.

A tool may import every other package. Outside of ``tools``, only ``cli``, which registers the commands, and ``up``,
which checks the webhook's settings, import a tool. Commands that query or change name servers as ``mqadmin`` does are
in ``client.commands``, those that query the past in ``history``; the processes that serve (``server``, ``streaming``,
``kafka``, ``up``) are not tools.
"""
