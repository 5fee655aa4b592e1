from __future__ import annotations

import pytest

from tests.core.builders import World, make_world


@pytest.fixture(scope="session")
def world() -> World:
    return make_world()
