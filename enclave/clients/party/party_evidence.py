"""A party's own hardware evidence, over the workload's challenge and its signing key.

The workload appraises it under the policy that the plan pins, with roots the
workload was given.  A simulated device is kept in the state directory, so that
its root can be handed over beforehand; it proves nothing.
"""

from __future__ import annotations

from attestation.collect import Attester, SimulatedAttester, open_attester
from attestation.types import SIMULATED
from enclave.clients.party.errors import ClientRefused
from enclave.clients.party.session import PartySession
from enclave.clients.party.state import StateDirectory
from enclave.core.binding import party_binding

_DEVICE_FILE = "simulated_device.pem"
PUBLIC_ROOT_FILE = "public/simulated_root.pem"


def create_simulated_device(state: StateDirectory) -> bytes:
    """Make the party's simulated device where there is none; gives the PEM of its root."""
    if not state.has(_DEVICE_FILE):
        device = SimulatedAttester()
        state.write(PUBLIC_ROOT_FILE, device.root_certificates())
        state.write(_DEVICE_FILE, device.identity_pem())
    return state.read(PUBLIC_ROOT_FILE)


def open_party_attester(state: StateDirectory, kind: str) -> Attester:
    """The device that a plan asks evidence of.

    Raises ClientRefused `simulated_device_missing`; CollectError for hardware that is not there.
    """
    if kind != SIMULATED:
        return open_attester(kind)
    if not state.has(_DEVICE_FILE):
        raise ClientRefused(
            "simulated_device_missing",
            expected="a simulated device whose root the workload was given",
            hint="make one: `doubleblind attest device`",
        )
    return SimulatedAttester(identity_pem=state.read(_DEVICE_FILE))


def show_evidence(session: PartySession, attester: Attester) -> str:
    """Answer the enclave's challenge with evidence; gives the evidence's digest.

    Raises ClientRefused `evidence_not_asked` when the plan asks none of this party.
    """
    plan, party = session.directory.plan, session.keys.party
    if plan.party_evidence.get(party.role) is None:
        raise ClientRefused(
            "evidence_not_asked", expected=f"a plan that asks evidence of the {party.role}"
        )
    challenge = session.client.get_session().party_challenge
    binding = party_binding(
        plan.digest, session.inputs.session, party.role, party.signing_key, challenge
    )
    return session.client.submit_party_evidence(attester.collect_evidence(binding).to_bytes())
