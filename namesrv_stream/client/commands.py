"""All commands that talk to name servers."""

import typer

from namesrv_stream.client import admin_commands, comparison_command, mqadmin_commands, question_commands


def register(app: typer.Typer, mqadmin_app: typer.Typer) -> None:
    """Add the commands to the command line, and those under mqadmin's names to mqadmin's group."""
    question_commands.register(app)
    admin_commands.register(app)
    comparison_command.register(app)
    mqadmin_commands.register(app, mqadmin_app)
