"""The demo's folder on the path, as it is when its target is started there, and its shop."""

import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[3] / "docs" / "demo"
sys.path.insert(0, str(DEMO))

from support_desk import Shop, open_shop  # noqa: E402  (only found once the path is set)


@pytest.fixture(scope="session")
def demo() -> Path:
    return DEMO


@pytest.fixture(scope="session")
def shop() -> Shop:
    return open_shop(DEMO)
