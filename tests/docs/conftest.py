"""The pages' commands are run once, for all tests that look at what came of them."""

import pytest

from tests.docs.pages import PAGES
from tests.docs.sessions import Sessions


@pytest.fixture(scope="session")
def sessions(tmp_path_factory):
    made = Sessions([page for page in PAGES.values() if page.commands], tmp_path_factory.mktemp("pages"))
    yield made
    made.close()
