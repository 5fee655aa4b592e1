"""The table of attacks: each is refused with its own error class and code."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.attacks.acceptance import Attack
from tests.attacks.scene import Stage

ROOMS = sorted(path.stem for path in Path(__file__).parent.glob("*_attacks.py"))
ATTACKS: list[Attack] = [
    attack for room in ROOMS for attack in import_module(f"tests.attacks.{room}").ATTACKS
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack(attack: Attack, stage: Stage) -> None:
    step = attack.prepare(stage)
    with pytest.raises(attack.error) as caught:
        step()
    assert type(caught.value) is attack.error
    assert caught.value.code == attack.code, str(caught.value)
    assert not stage.trace.exists(), "code of the attacker's ran"
