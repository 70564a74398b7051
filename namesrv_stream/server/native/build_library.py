"""Setuptools commands that compile the native lane as a plain shared library; pyproject.toml names them.

The library uses no Python API, so one wheel fits every Python version. The environment variable ``NATIVE_LANE=off``
builds a wheel without it.
"""

import os
from pathlib import Path
from typing import Final

from setuptools import Extension
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

_IS_WANTED: Final = os.environ.get("NATIVE_LANE", "on") != "off"


class BuildLibrary(build_ext):  # type: ignore[misc]  # it ships no type information
    """Compiles the library; an error of the compiler fails the build."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the file name without the suffix of a Python version."""
        return f"{Path(*fullname.split('.'))}.so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """Return the exported symbols without a ``PyInit_`` function."""
        return list(ext.export_symbols)

    def get_libraries(self, ext: Extension) -> list[str]:
        """Return the libraries without Python's."""
        return list(ext.libraries)


class PlatformWheel(bdist_wheel):  # type: ignore[misc]
    """Tags a wheel ``py3-none-PLATFORM`` with the library, and ``py3-none-any`` without it."""

    def finalize_options(self) -> None:
        if not _IS_WANTED:
            self.distribution.ext_modules = []
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]
