"""Python and the packages: what is installed against what this version was tested with."""

import platform
from importlib import metadata

from packaging.requirements import Requirement

from namesrv_stream import __version__
from namesrv_stream.doctor.finding import Finding, fault, fine, note, warning
from namesrv_stream.errors import ConfigError
from namesrv_stream.server.native.lane import open_lane
from namesrv_stream.settings import Settings

_DISTRIBUTION = "namesrv-stream"
_LANE = "native lane"
_LANE_REMEDY = "run `make setup`, or install the wheel that was built for this machine"


def packages() -> Finding:
    """Each package that we require, at a version that we allow."""
    wrong = []
    try:
        required = [Requirement(text) for text in metadata.requires(_DISTRIBUTION) or ()]
    except metadata.PackageNotFoundError:
        return fault(
            "packages", f"{_DISTRIBUTION} is not installed", "run `make setup` in the checkout, or pip install it"
        )
    for requirement in required:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            wrong.append(f"{requirement.name} is {found}, not {requirement.specifier}")
    versions = f"namesrv-stream {__version__}, Python {platform.python_version()}"
    if wrong:
        return fault(
            "packages", f"{versions}: {'; '.join(wrong)}", "run `make setup`, or reinstall namesrv-stream with pip"
        )
    parts = f"Spark {metadata.version('pyspark')}, Delta {metadata.version('delta-spark')}"
    return fine("packages", f"{versions}, {parts}")


def native_lane(settings: Settings) -> Finding:
    """Whether a server of these settings has it."""
    try:
        _, status = open_lane(settings.remoting)
    except ConfigError as error:
        return fault(
            _LANE, f"{error.key}: {error.reason}", f"{_LANE_REMEDY}, or set advanced.remoting.native_lane to auto"
        )
    if status.is_fault:
        return warning(_LANE, status.text, _LANE_REMEDY)
    if status.is_active or settings.remoting.native_lane == "off":
        return fine(_LANE, status.text)
    return note(_LANE, status.text, _LANE_REMEDY)
