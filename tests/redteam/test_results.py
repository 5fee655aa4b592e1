"""What the self-test makes of what its compartments tell: silence is never a stopped attempt."""

from __future__ import annotations

import pytest

from enclave.core.errors import IsolationRefused
from enclave.workload.isolation.probes.registry import probes_for
from enclave.workload.launcher.selftest import demand_expected, results_of

KINDS = ("sandbox", "model_host", "gate")


@pytest.mark.parametrize("kind", KINDS)
def test_a_compartment_that_ended_early_is_no_proof(kind: str) -> None:
    probes = probes_for(kind)
    told = {probe.id: probe.expected for probe in probes}
    identities = list(told)
    assert len(results_of(kind, identities, told)) == len(probes) > 1
    demand_expected(results_of(kind, identities, told))
    for last in identities:
        partial = {name: outcome for name, outcome in told.items() if name != last}
        with pytest.raises(IsolationRefused) as caught:
            demand_expected(results_of(kind, identities, partial))
        assert caught.value.code == "sandbox_unavailable"
        assert last in caught.value.got


def test_a_probe_nobody_asked_for_is_refused() -> None:
    with pytest.raises(IsolationRefused) as caught:
        results_of("gate", ["ptrace"], {"socket": "refused"})
    assert caught.value.code == "sandbox_unavailable"
