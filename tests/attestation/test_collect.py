"""Collectors: the simulated attester shouts, hardware kinds say what is missing."""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from attestation.appraise import appraise_evidence, derive_gpu_nonce, parse_reference_values
from attestation.collect import (
    SimulatedAttester,
    SimulatedEvidenceWarning,
    measure_source_tree,
    open_attester,
    reference_values_for_simulated,
)
from attestation.collect.hardware import REQUIREMENTS, refuse_hardware
from attestation.errors import CollectError
from attestation.types import KINDS, TrustRoots
from attestation.verify import parse_evidence_bundle, parse_trust_roots, verify_evidence
from enclave.core.binding import gpu_nonce
from images.reference_values import main
from tests.attestation.forging import BINDING, MEASUREMENT, NOW, policy, reference_values

ROOT = Path(__file__).parents[2]


def test_simulated_attester_end_to_end() -> None:
    with pytest.warns(SimulatedEvidenceWarning, match="proves nothing"):
        attester = open_attester("simulated")
    now = datetime.now(UTC)
    roots = parse_trust_roots(simulated=attester.root_certificates())
    bundle = parse_evidence_bundle(attester.collect_evidence(BINDING).to_bytes())
    result = appraise_evidence(
        verify_evidence(bundle, roots=roots, now=now),
        policy=policy(),
        reference_values=parse_reference_values(reference_values_for_simulated()),
        expected_binding=BINDING,
        now=now,
    )
    assert result.kinds == (attester.kind,) == ("simulated",)


def simulated(**settings: object) -> SimulatedAttester:
    with pytest.warns(SimulatedEvidenceWarning):
        return SimulatedAttester(MEASUREMENT, **settings)  # type: ignore[arg-type]


def test_warning_and_certificate_shout(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        attester = simulated()
    assert "proves nothing about hardware" in caplog.text
    root = x509.load_pem_x509_certificate(attester.root_certificates())
    assert "SIMULATED" in root.subject.rfc4514_string()
    assert "NOT HARDWARE" in root.subject.rfc4514_string()
    assert b"proves nothing about hardware" in attester.collect_evidence(BINDING).items[0].payload


def test_attesters_do_not_vouch_for_each_other() -> None:
    first, second = simulated(), simulated()
    roots = TrustRoots(simulated=second.root_certificates())
    with pytest.raises(Exception, match="simulated_chain"):
        verify_evidence(first.collect_evidence(BINDING), roots=roots, now=datetime.now(UTC))


def test_settings_are_what_the_evidence_says() -> None:
    attester = simulated(debug=True, tcb=9, clock=lambda: NOW, validity=timedelta(hours=1))
    roots = TrustRoots(simulated=attester.root_certificates())
    verified = verify_evidence(attester.collect_evidence(BINDING), roots=roots, now=NOW)
    (claims,) = verified.claims
    assert claims.debug is True  # type: ignore[union-attr]
    assert claims.tcb == 9  # type: ignore[union-attr]
    assert claims.issued_at == NOW  # type: ignore[union-attr]
    assert verified.valid_until == NOW + timedelta(hours=1)
    result = appraise_evidence(
        verified,
        policy=policy(debug="on"),
        reference_values=reference_values(),
        expected_binding=BINDING,
        now=NOW,
    )
    assert result.binding == BINDING


def test_settings_out_of_range() -> None:
    for settings in ({"tcb": -1}, {"tcb": 2**31}, {"measurement": bytes(47)}):
        with pytest.warns(SimulatedEvidenceWarning), pytest.raises(CollectError):
            SimulatedAttester(**settings)  # type: ignore[arg-type]
    with pytest.raises(CollectError, match="report_data_size"):
        simulated().collect_evidence(bytes(63))


def test_hardware_kinds_say_what_is_missing(tmp_path: Path) -> None:
    assert set(REQUIREMENTS) == set(KINDS) - {"simulated"}
    for kind, requirement in REQUIREMENTS.items():
        system = tmp_path / kind
        for path, feature in requirement.steps:
            error = refuse_hardware(kind, system_root=system)
            assert error.code == "device_missing"
            assert error.findings[0].field == path
            assert feature in error.findings[0].expected
            (system / path.removeprefix("/")).parent.mkdir(parents=True, exist_ok=True)
            (system / path.removeprefix("/")).touch()
        assert refuse_hardware(kind, system_root=system).code == "kind_not_collected"
        with pytest.raises(CollectError) as caught:
            open_attester(kind)
        assert caught.value.exit_code == 6
    assert REQUIREMENTS["sev-snp"].steps[-1][0] == "/sys/kernel/config/tsm/report"


def test_unknown_kind() -> None:
    with pytest.raises(CollectError, match="kind_unknown"):
        open_attester("sample")


def test_measurement_of_a_tree(tmp_path: Path) -> None:
    tree = tmp_path / "enclave"
    (tree / "inner").mkdir(parents=True)
    (tree / "a.py").write_bytes(b"a = 1\n")
    (tree / "inner" / "b.json").write_bytes(b"{}")
    (tree / "filter.txt").write_bytes(b"allow read\n")
    (tree / "ignored.pyc").write_bytes(b"x")
    first = measure_source_tree([tree])

    def entry(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(name)) + name + hashlib.sha384(data).digest()

    listing = (
        entry(b"enclave/a.py", b"a = 1\n")
        + entry(b"enclave/filter.txt", b"allow read\n")
        + entry(b"enclave/inner/b.json", b"{}")
    )
    assert first == hashlib.sha384(b"doubleblind/source-tree/v1\x00" + listing).digest()
    (tree / "ignored.pyc").write_bytes(b"y")
    assert measure_source_tree([tree]) == first
    (tree / "filter.txt").write_bytes(b"allow ptrace\n")
    assert measure_source_tree([tree]) != first
    (tree / "filter.txt").write_bytes(b"allow read\n")
    assert measure_source_tree([tree]) == first
    (tree / "a.py").write_bytes(b"a = 2\n")
    assert measure_source_tree([tree]) != first
    (tree / "a.py").write_bytes(b"a = 1\n")
    (tree / "a.py").rename(tree / "c.py")
    assert measure_source_tree([tree]) != first


def test_measurement_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(CollectError, match="source_tree_missing"):
        measure_source_tree([tmp_path / "none"])
    with pytest.raises(CollectError, match="source_tree_empty"):
        measure_source_tree([tmp_path])


def test_installed_tree_is_measured() -> None:
    measured = measure_source_tree()
    assert len(measured) == 48
    document = parse_reference_values(reference_values_for_simulated(measured))
    assert measured.hex() in document.measurements["simulated"]


def test_everything_that_decides_is_measured() -> None:
    """A seccomp filter is a rule like any other; what is left out decides nothing."""
    repository = Path(__file__).resolve().parents[2]
    left_out = {
        path.relative_to(repository).as_posix()
        for package in ("enclave", "attestation")
        for path in (repository / package).rglob("*")
        if path.is_file() and path.suffix not in {".py", ".json", ".txt", ".pyc", ".pyi"}
    }
    assert left_out <= {
        "enclave/py.typed",
        "attestation/py.typed",
        "enclave/cli/error_catalogue.toml",  # texts for people
        "enclave/cli/demo_assets/bundle/bundle.toml",  # committed to by its plan
    }


def test_emitting_reference_values(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    target = tmp_path / "values.json"
    assert main(["--kind", "simulated", "--output", str(target)]) == 0
    assert main(["--kind", "simulated"]) == 0
    assert parse_reference_values(target.read_bytes()).name == "simulated-source-tree"
    assert parse_reference_values(capfdbinary.readouterr().out)
    with pytest.raises(SystemExit):
        main(["--kind", "sev-snp"])


def test_gpu_nonce_is_that_of_the_binding_specification() -> None:
    for value in (BINDING, bytes(64)):
        assert derive_gpu_nonce(value) == gpu_nonce(value)


ALONE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("enclave", "torch", "grpc"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import attestation.appraise, attestation.verify, attestation.collect
print(sorted({m.split(".")[0] for m in sys.modules} & {"enclave", "torch", "grpc"}))
"""


def test_attestation_is_usable_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-c", ALONE],
        capture_output=True,
        check=True,
        cwd=ROOT,
        env={"PATH": os.environ.get("PATH", "")},
        timeout=60,
    )
    assert done.stdout.strip() == b"[]"


def test_stage_tokens_are_held_by_their_stage_alone() -> None:
    holders = {
        token: sorted(
            path.relative_to(ROOT).as_posix()
            for package in ("attestation", "enclave")
            for path in (ROOT / package).rglob("*.py")
            if token in path.read_text()
        )
        for token in ("_VERIFIED", "_APPRAISED")
    }
    defined = "attestation/types/result.py"
    assert holders["_VERIFIED"] == [defined, "attestation/verify/evidence.py"]
    assert holders["_APPRAISED"] == ["attestation/appraise/evidence.py", defined]
