"""What the host lays in the place of the workload's state: root never follows it."""

import os

import pytest

from tests.isolation.harness import launch


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_lies_in_the_state_directorys_place_is_not_followed(tmp_path, kind):
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (victim / "kept").write_text("kept")
    before = os.stat(victim)
    directory = tmp_path / "w"
    directory.mkdir()
    if kind == "link":
        (directory / "state").symlink_to(victim)
    else:
        (directory / "state").write_text("")
    ended = launch(directory, "polite.py")
    assert ended.status == 70, ended.stderr
    assert "for the workload's state, not a link" in ended.stderr
    assert not ended.lines
    after = os.stat(victim)
    assert (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)
    assert [path.name for path in victim.iterdir()] == ["kept"]
