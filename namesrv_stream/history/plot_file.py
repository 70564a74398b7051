"""The file that ``--plot`` names: checked before any work is done for it."""

from pathlib import Path

from namesrv_stream.errors import ConfigError
from namesrv_stream.instants import COMMAND_LINE


def check_plot_file(path: Path) -> None:
    """Refuse a file that no picture can be written to.

    Raises:
        ConfigError: Its name does not end in .png, or its directory is not there.
    """
    if path.suffix.lower() != ".png":
        raise ConfigError(COMMAND_LINE, "--plot", f"{path} does not end in .png: pictures are PNG files")
    if not path.absolute().parent.is_dir():
        raise ConfigError(COMMAND_LINE, "--plot", f"{path.absolute().parent} is no directory")
