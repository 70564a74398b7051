"""``namesrv-stream demo``."""

from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import Exit, TyperException

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.logs import report_error
from namesrv_stream.settings.command_line import usage_error_text


def demo(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Keep what the run leaves in this new folder. Default: a temporary one.", metavar="DIR"),
    ] = None,
) -> int:
    """Demonstrate everything on this machine, within a minute."""
    from namesrv_stream.demo.main import run_demo

    return run_demo(data_dir)


def main() -> int:
    """Run it by itself."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(demo)
    try:
        outcome = app(standalone_mode=False, prog_name="python -m namesrv_stream.demo")
    except NamesrvStreamError as error:
        report_error(str(error))
        return error.exit_code
    except TyperException as error:
        report_error(usage_error_text(error))
        return error.exit_code
    except Exit as request:
        return request.exit_code
    return outcome if isinstance(outcome, int) else 0
