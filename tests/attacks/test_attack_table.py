"""The table of attacks: each is refused with its own error class and code."""

from __future__ import annotations

import pytest

from tests.attacks import (
    approval_attacks,
    evidence_attacks,
    grant_attacks,
    plan_attacks,
    session_attacks,
)
from tests.attacks.acceptance import Attack
from tests.attacks.scene import Stage

ROOMS = (plan_attacks, approval_attacks, session_attacks, evidence_attacks, grant_attacks)
ATTACKS: list[Attack] = [attack for room in ROOMS for attack in room.ATTACKS]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack(attack: Attack, stage: Stage) -> None:
    step = attack.prepare(stage)
    with pytest.raises(attack.error) as caught:
        step()
    assert type(caught.value) is attack.error
    assert caught.value.code == attack.code, str(caught.value)
