"""The settings of the fold as the configuration has them, compared with those in the log."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from namesrv_stream.route.liveness_settings import FoldSettings, SettingValue, setting_text
from namesrv_stream.settings.sections import Settings

#: Source of a ``settings_changed`` event that carries values of the configuration.
SOURCE: Final = "config"


def changed_settings(settings: Settings, logged: Mapping[str, str]) -> dict[str, SettingValue]:
    """The fold's settings whose configured value differs from the one logged, or from the fold's default if none was.

    Args:
        settings: The configuration.
        logged: Name → JSON text of the values that the configuration had when it was logged last.
    """
    configured = settings.liveness.model_dump()
    known = {name: setting_text(value) for name, value in asdict(FoldSettings()).items()} | dict(logged)
    return {n: v for n, v in configured.items() if n in known and setting_text(v) != known[n]}
