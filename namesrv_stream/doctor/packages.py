"""Python and the packages: what is installed against what this version was tested with."""

import platform
from importlib import metadata

from packaging.requirements import Requirement

from namesrv_stream import __version__
from namesrv_stream.doctor.finding import Finding, fault, fine
from namesrv_stream.server.native.library import load_library

_DISTRIBUTION = "namesrv-stream"


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
            "packages", f"{versions}: {'; '.join(wrong)}", "run `make setup`, or pip install namesrv-stream anew"
        )
    lane = "with the native lane" if load_library() is not None else "without the native lane, whose C was not compiled"
    parts = f"Spark {metadata.version('pyspark')}, Delta {metadata.version('delta-spark')}"
    return fine("packages", f"{versions}, {parts}, {lane}")
