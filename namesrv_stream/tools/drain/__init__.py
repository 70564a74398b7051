"""``drain``: removes the write permission of a broker, and proves that it can be stopped without failed sends.

``drain_state`` decides from what was observed, and does no I/O. ``broker_routes`` reads and changes a broker's
permissions at every name server. ``drain_run`` and ``undo_run`` use both. ``drain_command`` is the command, which
``cli`` registers.
"""
