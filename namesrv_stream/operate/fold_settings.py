"""The settings that the fold has, under the names that operators know, and what may be made of them."""

from collections.abc import Mapping
from dataclasses import asdict, fields

from namesrv_stream.errors import ConfigError
from namesrv_stream.route.setting_history import EFFECTIVE
from namesrv_stream.route.settings import FoldSettings, SettingValue, setting_text
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Flag, Settings
from namesrv_stream.settings.command_line import Configuration

SECTION = "liveness"

#: JSON text of a setting by its name in ``FoldSettings``.
Texts = Mapping[str, str]


def setting_key(name: str) -> str:
    """The setting as configuration files have it."""
    return f"{SECTION}.{name}"


def default_texts() -> dict[str, str]:
    """What holds where nothing was ever logged."""
    return {name: setting_text(value) for name, value in asdict(FoldSettings()).items()}


def running_texts(table: RouteTable, partition: int) -> dict[str, str]:
    """What holds in one partition."""
    logged = {name: text for (space, name), text in table.settings_of(partition).items() if space == EFFECTIVE}
    return default_texts() | logged


def configured_texts(settings: Settings) -> dict[str, str]:
    """What the configuration says of the fold's settings."""
    known = settings.liveness.model_dump()
    return {name: setting_text(known[name]) for name in default_texts() if name in known}


def check_change(configuration: Configuration, running: Texts, key: str, text: str) -> tuple[str, SettingValue]:
    """Name and value of the setting that ``key`` and ``text`` mean, held against the others that hold now.

    Args:
        configuration: For the settings that the fold does not have, such as the interval of ticks.
        running: What holds now.
        key: ``liveness.default_timeout_ms``, or without its section.
        text: The value as typed.

    Raises:
        ConfigError: There is no such setting, it cannot change at run time, or it cannot have this value.
    """
    section, dot, name = key.rpartition(".")
    kinds = {field.name: type(field.default) for field in fields(FoldSettings)}
    if name not in kinds or (dot and section != SECTION):
        if dot:
            configuration.load(Flag("config set", key, text))  # names the unknown key, and what comes near
        raise ConfigError(
            "config set",
            key,
            "does not change at run time: edit the configuration and start that part again; these do: "
            + ", ".join(map(setting_key, sorted(kinds))),
        )
    configured = configured_texts(Settings())
    value: SettingValue
    if name in configured:
        others = [Flag("what holds now", setting_key(n), running[n]) for n in configured if n in running]
        loaded = configuration.load(*others, Flag("config set", setting_key(name), text))
        value = getattr(loaded.settings.liveness, name)
    else:
        value = _read(name, text, kinds[name])
    try:
        FoldSettings().with_values({name: value})
    except ValueError as error:
        raise ConfigError("config set", setting_key(name), str(error)) from None
    return name, value


def _read(name: str, text: str, kind: type) -> SettingValue:
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind is int and text.removeprefix("-").isdecimal():
        return int(text)
    if kind is tuple:
        return tuple(part.strip() for part in text.replace(";", ",").split(",") if part.strip())
    expected = "true or false" if kind is bool else "a whole number"
    raise ConfigError("config set", setting_key(name), f"expected {expected}, not {text!r}")
