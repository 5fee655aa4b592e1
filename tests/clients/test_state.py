"""The state directory: permissions, atomic writes, one command at a time."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from enclave.clients.party.errors import StateRefused
from enclave.clients.party.keys import create_keys, load_keys
from enclave.clients.party.state import StateDirectory
from tests.clients.conftest import NOW


def test_everything_is_its_owners_alone(tmp_path: Path) -> None:
    os.umask(0)
    try:
        state = StateDirectory.create(tmp_path / "deep" / "state")
        create_keys(state, role="evaluator", name="Eve", now=NOW)
        state.write("secrets/suite.json", b"{}")
    finally:
        os.umask(0o022)
    seen = 0
    for parent, folders, files in os.walk(state.root):
        for name in (*folders, *files, "."):
            path = Path(parent) / name
            mode = stat.S_IMODE(path.lstat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path
            seen += 1
    assert seen >= 10


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        (".", 0o750),
        (".", 0o701),
        ("signing_key.pem", 0o640),
        ("tls_key.pem", 0o604),
        ("recipient_key", 0o660),
        ("party.json", 0o644),
        ("ledger.sqlite", 0o640),
    ],
)
def test_wider_permissions_are_refused(tmp_path: Path, name: str, mode: int) -> None:
    from enclave.clients.party.ledger import Ledger

    state = StateDirectory.create(tmp_path / "state")
    create_keys(state, role="evaluator", name="Eve", now=NOW)
    (state.root / name).chmod(mode)
    with pytest.raises(StateRefused) as refused:
        again = StateDirectory(state.root)
        load_keys(again)
        Ledger(again.root / "ledger.sqlite")
    assert refused.value.code == "state_permissions"
    assert "chmod" in refused.value.hint


def test_links_are_refused(tmp_path: Path) -> None:
    state = StateDirectory.create(tmp_path / "state")
    create_keys(state, role="evaluator", name="Eve", now=NOW)
    key = state.root / "signing_key.pem"
    elsewhere = tmp_path / "elsewhere.pem"
    key.rename(elsewhere)
    key.symlink_to(elsewhere)
    with pytest.raises(StateRefused, match="state_permissions"):
        load_keys(state)
    link = tmp_path / "link"
    link.symlink_to(state.root)
    with pytest.raises(StateRefused, match="state_missing"):
        StateDirectory(link)


def test_a_path_can_not_leave(tmp_path: Path) -> None:
    state = StateDirectory.create(tmp_path / "state")
    with pytest.raises(StateRefused, match="state_path"):
        state.write("a/../../b", b"")


def test_a_second_party_does_not_overwrite(tmp_path: Path) -> None:
    state = StateDirectory.create(tmp_path / "state")
    create_keys(state, role="evaluator", name="Eve", now=NOW)
    with pytest.raises(StateRefused, match="state_not_empty"):
        create_keys(state, role="evaluator", name="Eve", now=NOW)


@pytest.mark.parametrize("name", ["signing_key.pem", "tls_key.pem", "recipient_key"])
def test_keys_of_another_party_are_refused(tmp_path: Path, name: str) -> None:
    states = [StateDirectory.create(tmp_path / label) for label in ("a", "b")]
    for state in states:
        create_keys(state, role="evaluator", name="Eve", now=NOW)
    states[0].write(name, states[1].read(name))
    with pytest.raises(StateRefused, match="state_keys_mismatch"):
        load_keys(states[0])


def test_one_command_at_a_time(tmp_path: Path) -> None:
    state = StateDirectory.create(tmp_path / "state")
    with (
        state.locked(),
        pytest.raises(StateRefused, match="state_in_use"),
        StateDirectory(state.root).locked(),
    ):
        pytest.fail("two commands hold one directory")
    with state.locked():
        pass


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    state = StateDirectory.create(tmp_path / "state")
    state.write("file", b"old")
    with pytest.raises(TypeError):
        state.write("file", "not bytes")  # type: ignore[arg-type]
    assert state.read("file") == b"old"
    assert [path.name for path in state.root.iterdir()] == ["file"]
