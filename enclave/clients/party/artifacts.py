"""A party's sealed artifacts: ciphertext, the secret that opens it, and the public card.

The ciphertext is written beside its place and moved there last, so a crash
leaves either the old artifact or the new one, or a mismatch that `load_secret`
refuses; never a key that opens nothing and says so only inside the enclave.
"""

from __future__ import annotations

import hmac
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from enclave.clients.party.artifact_card import ArtifactCard, make_card, parse_artifact_card
from enclave.clients.party.errors import ClientRefused, StateRefused
from enclave.clients.party.sealing import seal_artifact
from enclave.clients.party.state import StateDirectory, restrict_tree, sync_directory
from enclave.core.canonical import parse_canonical, print_canonical
from enclave.core.fields import Fields
from enclave.core.plan import Plan
from enclave.core.sealed import parse_index
from enclave.core.vocabulary import ARTIFACT_OWNER, DIGEST_SIZE

_SECRET_BYTES = 32


@dataclass(frozen=True)
class ArtifactSecret:
    """What opens an artifact: its key and commitment salt, 32 bytes each. Secret."""

    artifact: str
    commitment: str
    key: bytes = field(repr=False)
    salt: bytes = field(repr=False)


def owned_artifacts(role: str) -> tuple[str, ...]:
    """The artifacts a role seals, uploads and grants."""
    return tuple(name for name, owner in ARTIFACT_OWNER.items() if owner == role)


def sealed_folder(state: StateDirectory, artifact: str) -> Path:
    """Where the ciphertext of an artifact lies."""
    return state.root / "sealed" / artifact


def seal_into_state(
    state: StateDirectory,
    artifact: str,
    source: Path,
    *,
    replace: bool,
    environment: str | None = None,
    template_sha256: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ArtifactCard:
    """Seal a folder under a fresh key and salt, and write its card.

    Raises ClientRefused `artifact_already_sealed` unless `replace`.
    """
    target = sealed_folder(state, artifact)
    if target.exists() and not replace:
        raise ClientRefused(
            "artifact_already_sealed",
            expected=f"no sealed {artifact} yet",
            got=str(target),
            hint="plans name the old commitment; `--replace` seals anew under a new key",
        )
    fresh = state.folder("sealed") / f".{artifact}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    sealed = seal_artifact(source, fresh, artifact, progress=progress)
    restrict_tree(fresh)
    secret = {
        "artifact": artifact,
        "commitment": sealed.commitment,
        "key": sealed.key.hex(),
        "salt": sealed.salt.hex(),
    }
    card = make_card(
        artifact,
        commitment=sealed.commitment,
        total_bytes=sealed.manifest.total_bytes,
        files=len(sealed.manifest.files),
        salt=sealed.salt,
        environment=environment,
        template_sha256=template_sha256,
    )
    state.write(f"secrets/{artifact}.json", print_canonical(secret))
    if target.exists():
        shutil.rmtree(target)
    fresh.rename(target)
    sync_directory(target.parent)
    state.write(f"public/{artifact}.json", card.to_bytes())
    return card


def load_card(state: StateDirectory, artifact: str) -> ArtifactCard:
    """The public card of an artifact sealed here."""
    if not state.has(f"public/{artifact}.json"):
        raise _not_sealed(artifact)
    return parse_artifact_card(state.read(f"public/{artifact}.json"))


def load_secret(state: StateDirectory, artifact: str) -> ArtifactSecret:
    """The secret of an artifact; it must be that of the ciphertext beside it.

    Raises StateRefused `artifact_not_sealed`, `artifact_incomplete`.
    """
    if not state.has(f"secrets/{artifact}.json"):
        raise _not_sealed(artifact)
    fields = Fields(parse_canonical(state.read(f"secrets/{artifact}.json")), "artifact secret")
    secret = ArtifactSecret(
        artifact=fields.constant("artifact", artifact),
        commitment=fields.hex("commitment", DIGEST_SIZE),
        key=bytes.fromhex(fields.hex("key", _SECRET_BYTES)),
        salt=bytes.fromhex(fields.hex("salt", _SECRET_BYTES)),
    )
    fields.done()
    if not state.has(f"sealed/{artifact}/index.json"):
        raise _not_sealed(artifact)
    index = parse_index(state.read(f"sealed/{artifact}/index.json"))
    if not hmac.compare_digest(index.commitment, secret.commitment):
        raise StateRefused(
            "artifact_incomplete",
            expected=f"ciphertext and key of the {artifact} from one sealing",
            hint="sealing was cut short: seal again with `--replace`",
        )
    return secret


def refuse_other_artifact(plan: Plan, secret: ArtifactSecret) -> None:
    """Refuse a plan that names another commitment than the artifact sealed here."""
    stated = plan.artifact(secret.artifact).commitment
    if not hmac.compare_digest(stated, secret.commitment):
        raise ClientRefused(
            "artifact_other_commitment",
            expected=f"{secret.artifact} {secret.commitment}",
            got=stated,
            hint="the plan is about another sealing of it: write a new plan",
        )


def _not_sealed(artifact: str) -> StateRefused:
    return StateRefused(
        "artifact_not_sealed",
        expected=f"a sealed {artifact} in this state directory",
        hint="make it with `seal`",
    )
