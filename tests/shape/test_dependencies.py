"""What the project stands on: each dependency has a reason, and is pinned with hashes and without addresses."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text()
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))

project = tomllib.loads(PYPROJECT)
base = project["project"]["dependencies"]
extras = project["project"]["optional-dependencies"]
groups = project["dependency-groups"]

ASKED_FOR = {
    "dev": base + extras["server"] + extras["parquet"] + extras["dev"] + groups["build"],
    "server": base + extras["server"] + groups["build"],
    "generate": groups["generate"],
    **{f"interop-{name}": base + groups[f"interop-{name}"] for name in ("judges", "ragas", "inspect")},
    **{name: groups[name] for name in ("interop-models", "interop-models-data")},
}


def logical_lines(lock: Path) -> list[str]:
    """Return the requirements of a lock file, each with its continuation lines, comments left out."""
    text = "\n".join(line for line in lock.read_text().splitlines() if not line.lstrip().startswith("#"))
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def pins(lock: Path) -> dict[str, Version]:
    found = (re.match(r"([\w.-]+)==(\S+)", line) for line in logical_lines(lock))
    return {canonicalize_name(match[1]): Version(match[2]) for match in found if match}


@pytest.mark.parametrize("wanted", sorted({row for rows in ASKED_FOR.values() for row in rows}))
def test_every_dependency_has_a_sentence_of_reason(wanted: str) -> None:
    lines = [line for line in PYPROJECT.splitlines() if line.strip().startswith(f'"{wanted}"')]

    assert lines, f"{wanted} is not on a line of its own"
    for line in lines:
        assert re.search(r"#\s+\w.+\.$", line), f"no reason, as a sentence, beside {wanted}"


def test_there_is_one_lock_for_each_environment() -> None:
    assert sorted(lock.stem for lock in LOCKS) == sorted(ASKED_FOR)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_pin_has_a_hash(lock: Path) -> None:
    bare = [line for line in logical_lines(lock) if not re.match(r"[\w.-]+==\S+.*--hash=sha256:[0-9a-f]{64}", line)]

    assert bare == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_no_lock_names_a_place_to_download_from(lock: Path) -> None:
    text = lock.read_text()

    assert not re.search(r"://|--(extra-)?index-url|--find-links|--trusted-host| @ ", text)


@pytest.mark.parametrize("name", sorted(ASKED_FOR))
def test_every_lock_holds_what_pyproject_asks_for(name: str) -> None:
    """Otherwise a dependency was added without `scripts/lock`."""
    locked = pins(ROOT / "requirements" / f"{name}.txt")
    wanted = [Requirement(row) for row in ASKED_FOR[name]]

    missing = [str(row) for row in wanted if canonicalize_name(row.name) not in locked]
    present = [row for row in wanted if canonicalize_name(row.name) in locked]
    outside = [str(row) for row in present if not row.specifier.contains(locked[canonicalize_name(row.name)])]

    assert (missing, outside) == ([], [])


def test_the_development_lock_holds_the_server_lock() -> None:
    """The scripts rely on it: one environment serves both, and tests run on what users run on."""
    assert pins(ROOT / "requirements/server.txt").items() <= pins(ROOT / "requirements/dev.txt").items()


def test_generated_code_is_made_for_the_oldest_runtime_that_we_allow() -> None:
    """The runtime refuses code that is newer than itself."""
    made = pins(ROOT / "requirements/generate.txt")["grpcio-tools"]
    (grpcio,) = (row for row in map(Requirement, base) if row.name == "grpcio")

    assert grpcio.specifier.contains(made)
    assert f"grpcio>={made.major}.{made.minor}" == str(grpcio)
