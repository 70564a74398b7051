"""Programs beside the data path: what operators, analysts and testers run, one sub-package per program.

A tool may import every other package; nothing outside of ``tools`` imports it except ``cli``, which registers its
command. Answers to operators' questions about live routes are in ``client.commands``, those about the past in
``history``; the processes that serve (``server``, ``streaming``, ``kafka``, ``up``) are not tools.
"""
