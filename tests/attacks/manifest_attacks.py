"""Attacks on what an artifact says it is: salts, manifests, code exchanged after approval."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from enclave.clients.channel.upload import upload_artifact
from enclave.clients.evaluator.suite import seal_bundle
from enclave.clients.party.artifacts import sealed_folder
from enclave.clients.party.errors import ClientRefused
from enclave.clients.party.granting import grant_run
from enclave.clients.party.sealing import seal_artifact
from enclave.core.errors import DocumentRefused, SealedRefused, UploadRefused
from enclave.core.sealed import ArtifactLimits
from enclave.workload.memory.memfd import MemfdMemory
from enclave.workload.opening import open_artifact
from tests.attacks.acceptance import EVALUATOR, MODEL_OWNER, Step, Table
from tests.attacks.scene import Stage
from tests.sealed.artifacts import (
    Sealed,
    craft,
    manifest_entry,
    rewrite_index,
    seal_tree,
)

ATTACKS = Table()


@ATTACKS.add(
    "salt-wrong",
    by=MODEL_OWNER,
    covers="wrong salt",
    error=SealedRefused,
    code="commitment_mismatch",
)
def salt_wrong(stage: Stage) -> Step:
    sealed = seal_tree(stage.folder / "artifact", {"a": os.urandom(3000), "b": b"b"})
    return lambda: sealed.open(salt=os.urandom(32))


@ATTACKS.add(
    "manifest-digest-wrong",
    by=MODEL_OWNER,
    covers="wrong manifest digest",
    error=SealedRefused,
    code="commitment_mismatch",
)
def manifest_digest_wrong(stage: Stage) -> Step:
    """The owner commits to one model and uploads another, sealed under the granted key."""
    committed = seal_tree(stage.folder / "committed", {"weights": b"the agreed ones"})
    content = b"quite other ones"
    other = craft(stage.folder, [manifest_entry("weights", content)], [content])
    rewrite_index(other.directory, commitment=committed.commitment)
    return lambda: other.open(salt=committed.salt, commitment=committed.commitment)


@ATTACKS.add("file-digest-wrong", by=MODEL_OWNER, error=SealedRefused, code="file_digest_mismatch")
def file_digest_wrong(stage: Stage) -> Step:
    """The manifest is the committed one, a file under the right key is not."""
    entry = manifest_entry("weights", b"the agreed ones")
    return craft(stage.folder, [entry], [b"other, as long "]).open


def crafted(stage: Stage, *paths: str) -> Sealed:
    entries = [manifest_entry(path, path.encode()) for path in paths]
    return craft(stage.folder, entries, [path.encode() for path in paths])


@ATTACKS.add(
    "manifest-parent-path",
    by=EVALUATOR,
    covers="manifest with `..`",
    error=SealedRefused,
    code="manifest_path_unsafe",
)
def manifest_parent_path(stage: Stage) -> Step:
    return crafted(stage, "prompts/../../bundle/score.py").open


@ATTACKS.add(
    "manifest-absolute-path",
    by=EVALUATOR,
    covers="manifest with an absolute path",
    error=SealedRefused,
    code="manifest_path_unsafe",
)
def manifest_absolute_path(stage: Stage) -> Step:
    return crafted(stage, "/etc/ld.so.preload").open


@ATTACKS.add(
    "manifest-duplicate",
    by=EVALUATOR,
    covers="manifest with a duplicate",
    error=SealedRefused,
    code="manifest_duplicate_path",
)
def manifest_duplicate(stage: Stage) -> Step:
    return crafted(stage, "score.py", "score.py").open


@ATTACKS.add(
    "manifest-duplicate-by-case",
    by=EVALUATOR,
    covers="manifest with a duplicate",
    error=SealedRefused,
    code="manifest_duplicate_path",
)
def manifest_duplicate_by_case(stage: Stage) -> Step:
    return crafted(stage, "Score.py", "score.py").open


@ATTACKS.add(
    "manifest-file-and-folder",
    by=EVALUATOR,
    covers="manifest with a duplicate",
    error=SealedRefused,
    code="manifest_duplicate_path",
)
def manifest_file_and_folder(stage: Stage) -> Step:
    return crafted(stage, "score", "score/entry.py").open


@ATTACKS.add(
    "manifest-link",
    by=EVALUATOR,
    covers="manifest with a link",
    error=SealedRefused,
    code="source_link",
)
def manifest_link(stage: Stage) -> Step:
    """A link in the folder to seal: it could pull in what is not meant to leave."""
    source = stage.folder / "source"
    source.mkdir()
    (source / "prompts.jsonl").symlink_to("/etc/passwd")
    return lambda: seal_artifact(source, stage.folder / "sealed", "suite")


@ATTACKS.add(
    "manifest-link-entry",
    by=EVALUATOR,
    covers="manifest with a link",
    error=DocumentRefused,
    code="document_field_unknown",
)
def manifest_link_entry(stage: Stage) -> Step:
    """A manifest has no way to say `link`."""
    entry = {**manifest_entry("prompts", b"x"), "link": "/proc/1/mem"}
    return craft(stage.folder, [entry], [b"x"]).open


@ATTACKS.add(
    "manifest-oversize",
    by=EVALUATOR,
    covers="manifest oversize",
    error=SealedRefused,
    code="artifact_too_large",
)
def manifest_oversize(stage: Stage) -> Step:
    sealed = seal_tree(stage.folder / "artifact", {"a": os.urandom(3000), "b": b"b"})
    return lambda: sealed.open(limits=ArtifactLimits(max_bytes=3000, max_files=2))


@ATTACKS.add(
    "manifest-too-many-files",
    by=EVALUATOR,
    covers="manifest oversize",
    error=SealedRefused,
    code="artifact_too_many_files",
)
def manifest_too_many_files(stage: Stage) -> Step:
    sealed = crafted(stage, *(f"{number:03d}" for number in range(20)))
    return lambda: sealed.open(limits=ArtifactLimits(max_bytes=1024, max_files=19))


@ATTACKS.add(
    "manifest-size-lies",
    by=EVALUATOR,
    covers="manifest oversize",
    error=SealedRefused,
    code="index_size_mismatch",
)
def manifest_size_lies(stage: Stage) -> Step:
    """Small for the plan's bounds in the manifest, large in the stream."""
    entry = {**manifest_entry("prompts", b"x" * 5000), "size": 5}
    return craft(stage.folder, [entry], [b"x" * 5000]).open


@ATTACKS.add(
    "manifest-of-another-artifact", by=EVALUATOR, error=SealedRefused, code="manifest_mismatch"
)
def manifest_of_another_artifact(stage: Stage) -> Step:
    """A suite sealed as a bundle: prompts would run as code."""
    entry = manifest_entry("score.py", b"x")
    return craft(stage.folder, [entry], [b"x"], artifact="suite", index_artifact="bundle").open


@ATTACKS.add("manifest-unsorted", by=EVALUATOR, error=SealedRefused, code="manifest_order")
def manifest_unsorted(stage: Stage) -> Step:
    return crafted(stage, "b", "a").open


# Code exchanged after both parties approved it.


def change_bundle(stage: Stage) -> Path:
    """The evaluator seals other code in the bundle's place; its folder of ciphertext."""
    side = stage.side(EVALUATOR)
    changed = shutil.copytree(stage.scene.sources["bundle"], stage.folder / "bundle")
    (changed / "score.py").write_text("def evaluate(model, suite):\n    return {'all': 'of it'}\n")
    seal_bundle(side.state, changed, replace=True)
    return sealed_folder(side.state, "bundle")


@ATTACKS.add(
    "bundle-changed-upload",
    by=EVALUATOR,
    covers="bundle changed after approval",
    error=UploadRefused,
    code="upload_commitment_mismatch",
)
def bundle_changed_upload(stage: Stage) -> Step:
    workload = stage.workload(approved=True)
    index = (change_bundle(stage) / "index.json").read_bytes()
    client = stage.channel(EVALUATOR, stage.serve(workload.broker))
    return lambda: list(client.exchange_upload("bundle", index, iter(())))


@ATTACKS.add(
    "bundle-changed-open",
    by=EVALUATOR,
    covers="bundle changed after approval",
    error=SealedRefused,
    code="commitment_mismatch",
)
def bundle_changed_open(stage: Stage) -> Step:
    """The public index is rewritten to the plan's commitment, so that the upload goes through."""
    workload = stage.workload(approved=True)
    folder = change_bundle(stage)
    plan = stage.scene.directory.plan
    rewrite_index(folder, commitment=plan.bundle.commitment)
    client = stage.channel(EVALUATOR, stage.serve(workload.broker))
    upload_artifact(client, plan, "bundle", folder)
    store = workload.desks[workload.plan].stores["bundle"]
    key = json.loads(stage.side(EVALUATOR).state.read("secrets/bundle.json"))["key"]
    salt, terms = bytes.fromhex(plan.bundle.salt), plan.bundle

    def open_as_a_run_does() -> None:
        with store.open_source() as source:
            memory = MemfdMemory()
            open_artifact(source, bytes.fromhex(key), salt, terms.commitment, memory, terms, 1)

    return open_as_a_run_does


@ATTACKS.add(
    "bundle-changed-grant",
    by=EVALUATOR,
    covers="bundle changed after approval",
    error=ClientRefused,
    code="artifact_other_commitment",
)
def bundle_changed_grant(stage: Stage) -> Step:
    """The honest client notices that the sealed bundle is no longer the plan's."""
    workload = stage.workload(approved=True)
    change_bundle(stage)
    session = stage.connect(EVALUATOR, stage.serve(workload.broker))
    return lambda: grant_run(stage.side(EVALUATOR).state, session, now=stage.scene.now)
