"""The table of attacks: each is refused with its own error class and code."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from enclave.cli.error_catalogue import explain_code
from enclave.workload.service.roles import ALLOWED_ROLES
from tests.attacks.acceptance import ACCEPTANCE, ATTACKERS, Attack
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
    assert not [secret for secret in stage.secrets() if secret in str(caught.value)]


def test_the_table_is_long_enough() -> None:
    assert len(ROOMS) == 11
    assert len(ATTACKS) >= 240
    assert len({(attack.error, attack.code) for attack in ATTACKS}) >= 140
    assert [
        name for name, times in Counter(each.name for each in ATTACKS).items() if times > 1
    ] == []


def test_the_table_covers_the_acceptance() -> None:
    covered = {attack.covers for attack in ATTACKS} - {""}
    assert covered == set(ACCEPTANCE)
    assert {attack.by for attack in ATTACKS} == set(ATTACKERS)


def test_the_table_covers_every_rpc() -> None:
    called = {
        attack.name.split("-")[1].split("/")[0] for attack in ATTACKS if "rpc-" in attack.name
    }
    assert set(ALLOWED_ROLES) <= called


def test_every_code_is_explained() -> None:
    """Whoever meets the refusal finds it in docs/errors.md."""
    codes = {(attack.error.stage, attack.code) for attack in ATTACKS}
    assert [code for code in sorted(codes) if explain_code(*code) is None] == []
