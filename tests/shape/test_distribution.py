"""The wheel holds both packages with their types, and the contract."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names inside a wheel built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_says_that_both_packages_are_typed(shipped: set[str]) -> None:
    assert {"evalbus/py.typed", "evalbus_server/py.typed"} <= shipped


def test_the_wheel_holds_every_module_and_stub(shipped: set[str]) -> None:
    for parent in (ROOT / "scorer_sdk/python", ROOT / "server"):
        files = {str(path.relative_to(parent)) for path in parent.rglob("*.py*") if path.suffix in {".py", ".pyi"}}

        assert files <= shipped


def test_the_wheel_holds_the_contract(shipped: set[str]) -> None:
    """`evalbus proto export` reads it from there."""
    protos = {f"evalbus_server/proto/evalbus/v1/{path.name}" for path in (ROOT / "proto/evalbus/v1").glob("*.proto")}

    assert protos
    assert protos <= shipped


def test_the_wheel_holds_nothing_else(shipped: set[str]) -> None:
    assert {name.split("/")[0] for name in shipped if ".dist-info" not in name} == {"evalbus", "evalbus_server"}
