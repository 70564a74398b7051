"""The dependency audit of `make check`, based on the lock files, without a network (ADR 0030).

``python -m tests.support.dependencies`` prints one line per problem and exits with 1 if there are any.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY: Final = Path(__file__).resolve().parents[2]
LOCK: Final = "requirements.lock"
RUN_LOCK: Final = "deploy/image/requirements.lock"
LOCKS: Final = (
    LOCK,
    RUN_LOCK,
    "tests/bench/requirements.lock",
    "conf/audit/requirements.lock",
    "conf/docs/requirements.lock",
)

_PINNED: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.+!-]*)(?: *;.*)?")
_HASH: Final = re.compile(r"--hash=sha256:[0-9a-f]{64}")

#: Licences that dependencies of the product may have, as SPDX or classifiers name them. MPL binds its own files only.
_ALLOWED: Final = re.compile(
    r"\b(MIT|MIT-0|MIT-CMU|BSD|0BSD|ISC|Apache|MPL|Mozilla Public License|PSF|Python Software Foundation|Zlib|CC0)\b",
    re.IGNORECASE,
)
_REFUSED: Final = re.compile(r"\b(A?GPL|LGPL|SSPL|BUSL|GNU|Proprietary|Commercial)\b", re.IGNORECASE)

#: Packages with a licence that is otherwise refused, and the reason for the exception.
_EXCEPTED: Final = {
    "crc32c": "LGPL, which binds its own files only: Kafka's client uses it as it is installed, if it is"
}


class Locked(NamedTuple):
    """One line of a lock file with all that belongs to it."""

    text: str
    hashes: int


def problems(repository: Path = REPOSITORY) -> Iterator[str]:
    """Return a description of each problem."""
    for name in LOCKS:
        yield from lock_problems(name, (repository / name).read_text(encoding="utf-8"))
    versions = locked_versions((repository / LOCK).read_text(encoding="utf-8"))
    yield from differing_versions(locked_versions((repository / RUN_LOCK).read_text(encoding="utf-8")), versions)
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield from stale_requirements(project, versions)
    for name, version in versions.items():
        yield from installed_problems(name, version)


def lock_problems(name: str, text: str) -> Iterator[str]:
    """Return lines that do not pin one exact version from an index with its hashes."""
    for locked in _entries(text):
        if not _PINNED.fullmatch(locked.text):
            yield f"{name}: {locked.text}: is no exact version of a package"
        elif not locked.hashes:
            yield f"{name}: {locked.text}: has no hash"


def locked_versions(text: str) -> dict[str, str]:
    """Package → version."""
    found = (_PINNED.fullmatch(locked.text) for locked in _entries(text))
    return {canonicalize_name(match[1]): match[2] for match in found if match}


def differing_versions(run: Mapping[str, str], all_versions: Mapping[str, str]) -> Iterator[str]:
    """Return packages that the product would install in another version than its tests."""
    for name, version in run.items():
        if all_versions.get(name) != version:
            yield f"{RUN_LOCK}: {name}=={version}: {LOCK} has {all_versions.get(name) or 'none'}; run `make lock`"


def stale_requirements(project: Mapping[str, Any], versions: Mapping[str, str]) -> Iterator[str]:
    """Return requirements of pyproject.toml that the lock file does not meet."""
    for text in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        requirement = Requirement(text)
        version = versions.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            yield f"pyproject.toml: {text}: requirements.lock has {version or 'none'}; run `make lock`"


def installed_problems(name: str, version: str) -> Iterator[str]:
    """Return other installed versions than the locked ones, and licences that do not permit distribution."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        yield f"{name}=={version}: is locked and not installed; run `make setup`"
        return
    if found.version != version:
        yield f"{name}=={version}: {found.version} is installed; run `make setup`"
    licence = licence_of(found.metadata.json)
    if not licence:
        yield f"{name}=={version}: states no licence"
    elif name not in _EXCEPTED and not is_allowed(licence):
        yield f"{name}=={version}: its licence is not one of the allowed: {licence}"


def is_allowed(licence: str) -> bool:
    """Whether the product may be distributed with a package under this licence."""
    is_refused = _REFUSED.search(licence) and " OR " not in licence
    return bool(_ALLOWED.search(licence)) and not is_refused


def licence_of(metadata: Mapping[str, Any]) -> str:
    """The licence that a package declares: its SPDX expression, else its classifiers, else its first line of text."""
    if expression := metadata.get("license_expression"):
        return str(expression)
    named = [c.rpartition(" :: ")[2] for c in metadata.get("classifier", ()) if c.startswith("License :: ")]
    named = [name for name in named if name not in ("OSI Approved", "DFSG approved")]
    words = str(metadata.get("license") or "").strip().partition("\n")[0]
    return " OR ".join(named) or words


def _entries(text: str) -> Iterator[Locked]:
    joined = re.sub(r"\\\n\s*", " ", text)
    for line in joined.splitlines():
        line = line.partition("#")[0].strip()
        if line:
            yield Locked(line.partition(" --hash")[0].strip(), len(_HASH.findall(line)))


if __name__ == "__main__":
    found = list(problems())
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
