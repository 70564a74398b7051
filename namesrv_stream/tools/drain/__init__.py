"""``drain``: takes a broker out of writing, and proves that it can be stopped without the loss of a send.

``drain_state`` decides from what was observed, and does no I/O. ``broker_routes`` reads and changes a broker's
permissions at every name server. ``drain_run`` and ``undo_run`` use both. ``drain_command`` is the command, which
``cli`` registers.
"""
