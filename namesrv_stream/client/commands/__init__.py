"""The commands that talk to name servers, and what they share: options, errors, and answers as text.

The client itself does not import them. ``cli`` registers the commands, and ``history`` also uses the options and text.
"""

import typer

from namesrv_stream.client.commands import admin_commands, compare, mqadmin_commands, query_commands, view_commands


def register(app: typer.Typer, kv_app: typer.Typer, mqadmin_app: typer.Typer) -> None:
    """Add the commands to ``app``, those of the KV table to ``kv_app``, and mqadmin's names to ``mqadmin_app``."""
    query_commands.register(app)
    admin_commands.register(app, kv_app)
    view_commands.register(app)
    compare.register(app)
    mqadmin_commands.register(app, mqadmin_app)
