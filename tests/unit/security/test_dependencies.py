"""The dependency audit finds every kind of problem."""

import pytest

from tests.support.dependencies import (
    differing_versions,
    is_allowed,
    licence_of,
    lock_problems,
    locked_versions,
    stale_requirements,
)

HASH = "--hash=sha256:" + "0" * 64


@pytest.mark.parametrize(
    "line",
    [
        f"h11>=0.16 {HASH}",
        f"h11 {HASH}",
        f"h11 @ https://example.org/h11.whl {HASH}",
        f"git+https://example.org/h11 {HASH}",
        "--extra-index-url https://example.org/simple",
        "-e .",
        "h11==0.16.0",
        "h11==0.16.0 --hash=md5:" + "0" * 32,
    ],
)
def test_requirement_without_exact_version_and_hash_is_reported(line: str) -> None:
    assert len(list(lock_problems("x.lock", line + "\n"))) == 1


def test_valid_line_of_a_lock_file_is_accepted() -> None:
    text = f"# comment\nh11==0.16.0 \\\n    {HASH} \\\n    {HASH}\n    # via uvicorn\n"
    assert list(lock_problems("x.lock", text)) == []
    assert locked_versions(text) == {"h11": "0.16.0"}


def test_different_versions_of_run_and_test_locks_are_reported() -> None:
    run, tests = {"h11": "0.16.0", "click": "8.5.1", "anyio": "4.16.0"}, {"h11": "0.16.0", "click": "8.5.2"}
    assert [line.split(": ")[1] for line in differing_versions(run, tests)] == ["click==8.5.1", "anyio==4.16.0"]


def test_requirement_that_the_lock_does_not_meet_is_reported() -> None:
    project = {"dependencies": ["h11>=1"], "optional-dependencies": {"dev": ["absent", "Uvicorn<1"]}}
    assert [line.split(": ")[1] for line in stale_requirements(project, {"h11": "0.16.0", "uvicorn": "0.54.0"})] == [
        "h11>=1",
        "absent",
    ]


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ({"license_expression": "MIT", "license": "x"}, "MIT"),
        ({"classifier": ["License :: OSI Approved :: BSD License"], "license": "long text"}, "BSD License"),
        ({"license": "Apache-2.0\nmore"}, "Apache-2.0"),
        ({}, ""),
    ],
)
def test_a_licence_is_found_where_packages_state_it(metadata: dict[str, object], licence: str) -> None:
    assert licence_of(metadata) == licence


@pytest.mark.parametrize(
    ("licence", "may"),
    [
        ("MIT", True),
        ("BSD License", True),
        ("Apache-2.0 OR GPL-3.0", True),
        ("GNU Lesser General Public License v2 or later (LGPLv2+)", False),
        ("LGPL-2.1-or-later", False),
        ("MIT AND GPL-3.0", False),
        ("Proprietary", False),
    ],
)
def test_copyleft_licence_is_refused(licence: str, may: bool) -> None:
    assert is_allowed(licence) is may
