"""Flags that several commands for operators have."""

from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for scripts.")]
WaitOption = Annotated[float, typer.Option("--wait", help="Seconds to wait until the tables have it.", min=0)]
ByOption = Annotated[
    str | None, typer.Option("--by", help="Who changes it. Default: you, as user@host.", metavar="NAME")
]
