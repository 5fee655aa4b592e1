from __future__ import annotations

import pytest

from tests.attestation.forging import Forger


@pytest.fixture(scope="session")
def forger() -> Forger:
    return Forger.new()
