"""The command line: speed, exit codes, one JSON object, no traceback, plain words."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from enclave.cli.exit_codes import MEANINGS, ExitCode
from enclave.cli.failures import report_failure
from enclave.clients.party.plan_directory import write_plan_directory
from enclave.core.errors import rebuild_refusal
from tests.clients.conftest import (
    REPOSITORY,
    clean_environment,
    command_line,
    doubleblind,
    last_json,
)
from tests.clients.world import (
    World,
    card,
    make_facts,
    make_receipt,
    make_world,
    write_audit_folder,
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from enclave.cli.main import main\n"
        "code = main(['--help'])\n"
        "heavy = [m for m in ('torch','grpc','rich','cryptography','transformers') "
        "if m in sys.modules]\n"
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)\n"
    )
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
        )
        seconds.append(time.perf_counter() - begun)
        assert done.returncode == 0, done.stderr
    assert min(seconds) < 0.3, seconds
    for name in ("keygen", "owner", "evaluator", "plan", "run", "audit", "serve", "demo"):
        assert name in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("keygen",),
        ("party", "show"),
        ("plan", "new"),
        ("plan", "show"),
        ("plan", "diff"),
        ("attest", "reference-values"),
        ("audit",),
        ("run",),
        *[
            (party, verb)
            for party in ("owner", "evaluator")
            for verb in ("seal", "approve", "upload", "evidence", "grant", "status", "result")
        ],
    ],
    ids=" ".join,
)
def test_every_command_has_help_and_json(command: tuple[str, ...]) -> None:
    done = doubleblind(*command, "--help")
    assert done.returncode == 0, done.stderr
    assert "--json" in done.stdout
    assert "Options:" in done.stdout


def test_exit_codes_are_documented() -> None:
    page = (REPOSITORY / "docs/cli.md").read_text()
    assert set(MEANINGS) == set(ExitCode)
    for code, meaning in MEANINGS.items():
        assert f"| {code} | {meaning} |" in page


def test_keygen_then_party_show(tmp_path: Path) -> None:
    state = tmp_path / "state"
    made = doubleblind("keygen", "--role", "owner", "--name", "Acme", "--state", state, "--json")
    assert made.returncode == 0, made.stderr
    assert last_json(made)["role"] == "model_owner"
    assert len(made.stdout.splitlines()) == 1
    shown = doubleblind("party", "show", "--json", DOUBLEBLIND_STATE=str(state))
    assert last_json(shown)["party"]["name"] == "Acme"
    people = doubleblind("party", "show", "--state", state)
    assert "PRIVATE" not in people.stdout
    again = doubleblind("keygen", "--role", "owner", "--name", "Acme", "--state", state, "--json")
    assert again.returncode == ExitCode.MISUSE
    assert last_json(again)["error"]["code"] == "state_not_empty"


def test_errors_for_people_say_the_next_step(tmp_path: Path) -> None:
    done = doubleblind("party", "show", "--state", tmp_path / "none")
    assert done.returncode == ExitCode.MISUSE
    assert done.stdout == ""
    assert "doubleblind keygen" in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b[" not in done.stderr


def test_debug_brings_the_traceback(tmp_path: Path) -> None:
    done = doubleblind("party", "show", "--state", tmp_path / "none", DOUBLEBLIND_DEBUG="1")
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("keygen", "--role", "king"), ("plan", "show"), ("audit", "/none")]
)
def test_misuse_is_one_json_object(arguments: tuple[str, ...]) -> None:
    done = doubleblind(*arguments, "--json")
    assert done.returncode == ExitCode.MISUSE
    error = last_json(done)["error"]
    assert set(error) >= {"stage", "code", "expected", "got", "hint"}
    assert error["code"] == "usage"


def plan_arguments(world: World, out: Path) -> list[str | Path]:
    for state, artifacts in (
        (world.owner_state, ["model"]),
        (world.evaluator_state, ["suite", "bundle"]),
    ):
        for artifact in artifacts:
            state.write(f"public/{artifact}.json", card(artifact).to_bytes())
    policy = world.root / "results.json"
    from tests.clients.world import result_policy

    policy.write_bytes(result_policy())
    references = world.root / "references.json"
    references.write_bytes(world.plan().reference_values)
    return [
        "plan", "new",
        "--owner", world.owner_state.root / "public",
        "--evaluator", world.evaluator_state.root / "public",
        "--attestation-policy", REPOSITORY / "policies/unsafe_simulated.json",
        "--reference-values", references,
        "--result-policy", policy,
        "--out", out,
    ]  # fmt: skip


def test_plan_new_show_diff(world: World, tmp_path: Path) -> None:
    first = tmp_path / "plan"
    made = doubleblind(*plan_arguments(world, first), "--json")
    assert made.returncode == 0, made.stdout + made.stderr
    digest = last_json(made)["plan"]
    shown = doubleblind("plan", "show", first)
    assert digest in shown.stdout
    assert "What each role learns" in shown.stdout
    assert last_json(doubleblind("plan", "show", first, "--json"))["document"]["title"]
    second = tmp_path / "second"
    changed = doubleblind(
        *plan_arguments(world, second), "--set", "engine.seed=9", "--max-runs", "3", "--json"
    )
    assert changed.returncode == 0, changed.stdout
    diff = last_json(doubleblind("plan", "diff", first, second, "--json"))
    changed_paths = {change["path"] for change in diff["changes"]}
    assert {"engine.seed", "max_runs", "plan_id"} <= changed_paths
    same = doubleblind("plan", "diff", first, first)
    assert "the same, byte for byte" in same.stdout
    again = doubleblind(*plan_arguments(world, first), "--json")
    assert last_json(again)["error"]["code"] == "plan_directory_exists"
    assert again.returncode == ExitCode.POLICY


@pytest.mark.parametrize(
    ("extra", "code", "exit_code"),
    [
        (["--set", "engine.warp=9"], "plan_setting_unknown", ExitCode.POLICY),
        (["--set", "engine.seed=abc"], "plan_setting_value", ExitCode.POLICY),
        (["--set", "engine.batch=2"], "document_field_value", ExitCode.MALFORMED),
        (["--set", "nonsense"], "usage", ExitCode.MISUSE),
        (["--max-runs", "500"], "release_budget_exceeded", ExitCode.BUDGET),
        (["--view", "secret=evaluator"], "policy_view_empty", ExitCode.RUN),
    ],
)
def test_plan_new_refusals(
    world: World, tmp_path: Path, extra: list[str], code: str, exit_code: ExitCode
) -> None:
    done = doubleblind(*plan_arguments(world, tmp_path / "plan"), *extra, "--json")
    assert last_json(done)["error"]["code"] == code
    assert done.returncode == exit_code
    assert not (tmp_path / "plan").exists()


def test_a_plan_without_a_document_is_refused(world: World, tmp_path: Path) -> None:
    directory = world.plan()
    write_plan_directory(tmp_path / "plan", directory)
    document = tmp_path / "plan/documents" / f"{directory.plan.result_policy}.json"
    good = document.read_bytes()
    document.write_bytes(good.replace(b"512", b"513"))
    done = doubleblind("plan", "show", tmp_path / "plan", "--json")
    assert last_json(done)["error"]["code"] == "plan_document_digest"
    document.unlink()
    done = doubleblind("plan", "show", tmp_path / "plan", "--json")
    assert last_json(done)["error"]["code"] == "plan_document_missing"
    assert done.returncode == ExitCode.POLICY


def test_audit_exit_codes_and_json(world: World, tmp_path: Path) -> None:
    directory = world.plan()
    data = make_receipt(world, make_facts(world, directory))
    receipt = write_audit_folder(world, directory, data, tmp_path / "audit")
    now = ("--now", "2026-12-02T12:00:00Z")
    done = doubleblind("audit", receipt, *now, "--json")
    assert done.returncode == ExitCode.OK, done.stdout
    report = last_json(done)
    assert report["verdict"] == "verified"
    assert {check["state"] for check in report["checks"]} == {"verified"}
    assert report["judged_by"]["roots"] == "beside the receipt"
    assert report["not_proven"]
    assert "only because you put them there" in done.stderr

    alone = tmp_path / "alone.json"
    alone.write_bytes(data)
    done = doubleblind("audit", alone, *now)
    assert done.returncode == ExitCode.INCOMPLETE
    assert "--roots FILE" in done.stdout

    receipt.write_bytes(data + b" ")
    done = doubleblind("audit", receipt, *now, "--json")
    assert done.returncode == ExitCode.MALFORMED
    assert last_json(done)["verdict"] == "failed"


def test_reference_values(tmp_path: Path) -> None:
    out = tmp_path / "references.json"
    done = doubleblind("attest", "reference-values", "--kind", "simulated", "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_bytes())["type"].endswith("/reference-values/v1")


def test_an_unreachable_enclave_is_exit_7(world: World, tmp_path: Path) -> None:
    write_plan_directory(tmp_path / "plan", world.plan())
    done = doubleblind(
        "run", "--plan", tmp_path / "plan", "--endpoint", "127.0.0.1:1",
        "--state", world.owner_state.root, "--json",
    )  # fmt: skip
    assert done.returncode == ExitCode.UNREACHABLE, done.stdout
    assert last_json(done)["error"]["stage"] == "channel"


def test_a_state_of_the_other_role_is_refused(world: World, tmp_path: Path) -> None:
    write_plan_directory(tmp_path / "plan", world.plan())
    done = doubleblind(
        "owner", "status", "--plan", tmp_path / "plan", "--state", world.evaluator_state.root,
        "--json",
    )  # fmt: skip
    assert last_json(done)["error"]["code"] == "state_other_role"


def on_a_terminal(*arguments: str | Path, **environment: str) -> str:
    """What the command writes to a terminal, both streams."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command_line(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=clean_environment(TERM="xterm-256color", **environment),
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the terminal's other end is gone
            break
        if not part:
            break
        written += part
    os.close(ours)
    process.wait(30)
    return written.decode()


def test_colour_is_for_terminals_and_can_be_declined(tmp_path: Path) -> None:
    arguments = ("party", "show", "--state", tmp_path / "none")
    assert "\x1b[1;31m" in on_a_terminal(*arguments)
    assert "\x1b[1;31m" not in on_a_terminal(*arguments, NO_COLOR="1")
    assert "\x1b" not in doubleblind(*arguments).stderr


def test_names_of_the_other_side_can_not_steer_the_terminal(tmp_path: Path) -> None:
    root = tmp_path / "named"
    world = make_world(root, owner_name="[red]A[/nothing] lab")
    directory = world.plan()
    receipt = write_audit_folder(
        world, directory, make_receipt(world, make_facts(world, directory)), root / "audit"
    )
    done = doubleblind("audit", receipt, "--now", "2026-12-02T12:00:00Z")
    assert done.returncode == 0, done.stderr
    assert "[red]A[/nothing] lab" in done.stdout


def test_control_characters_of_a_refusal_are_not_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refusal = rebuild_refusal("session", "role_forbidden", got="\x1b[2Jgone\x07")
    assert report_failure(refusal, as_json=False) == ExitCode.POLICY
    shown = capsys.readouterr().err
    assert "gone" in shown
    assert "\x1b[2J" not in shown
    assert "\x07" not in shown


def test_a_reader_that_goes_away_is_no_error(world: World, tmp_path: Path) -> None:
    write_plan_directory(tmp_path / "plan", world.plan())
    shell = " ".join(map(shlex.quote, command_line("plan", "show", tmp_path / "plan")))
    done = subprocess.run(
        ["bash", "-c", f"{shell} | true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean_environment(),
    )
    assert done.stderr == ""


def test_two_commands_do_not_share_a_state(world: World) -> None:
    with world.owner_state.locked():
        done = doubleblind(
            "attest", "device", "--kind", "simulated", "--state", world.owner_state.root, "--json"
        )
    assert last_json(done)["error"]["code"] == "state_in_use"
    assert done.returncode == ExitCode.MISUSE
