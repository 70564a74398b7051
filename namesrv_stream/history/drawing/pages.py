"""Self-contained HTML pages: without requests to other addresses, and without scripts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from namesrv_stream.client.commands.tables import printable
from namesrv_stream.errors import ConfigError
from namesrv_stream.history.drawing.shapes import Chart, Tracks
from namesrv_stream.instants import COMMAND_LINE

#: Longer texts are truncated. Names of brokers are short unless they are malicious.
_MAX_CHARS: Final = 160


def render(template: str, **values: Any) -> str:
    """Return a page as HTML. ``template`` is a path below this package's parent."""
    environment = Environment(
        loader=PackageLoader("namesrv_stream.history", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printed,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def cut(text: str) -> str:
    """Return a text, truncated if it is too long for a page."""
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"


def write_plot(path: Path, title: str, figures: Sequence[Chart | Tracks]) -> None:
    """Write a page with charts, one below the other.

    Raises:
        ConfigError: The file cannot be written.
    """
    write_page("--plot", path, render("drawing/plot.html.jinja", title=cut(title), figures=figures))


def write_page(flag: str, path: Path, text: str) -> None:
    """Write a page to the file that a flag names.

    Raises:
        ConfigError: The file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(COMMAND_LINE, flag, f"{path} cannot be written: {error.strerror}") from None


def check_plot_file(path: Path) -> None:
    """Refuse an unsuitable file for a plot before any work is done.

    Raises:
        ConfigError: The name does not end in .html, or the directory does not exist.
    """
    if path.suffix.lower() != ".html":
        raise ConfigError(COMMAND_LINE, "--plot", f"{path} does not end in .html: plots are HTML pages")
    if not path.absolute().parent.is_dir():
        raise ConfigError(COMMAND_LINE, "--plot", f"{path.absolute().parent} is not a directory")


def _printed(value: Any) -> Any:
    """Escape control characters, such as those that reverse the direction of text, in what a template prints."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
