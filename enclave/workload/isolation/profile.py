"""The closed table of compartment kinds: what each may see, reach and call.

Everything the launcher needs to start a compartment follows from a kind, the
runtime and the limits; a broker chooses none of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from enclave.core.errors import IsolationRefused
from enclave.workload.isolation.landlock import LandlockRules, PathRule
from enclave.workload.isolation.limits import Limits
from enclave.workload.isolation.runtime import COMPARTMENT_ID, Runtime

MODEL_PORT: Final = 8000
"""The one TCP port inside a sandbox: the model's listener on 127.0.0.1."""

T2_LANDLOCK_ABI: Final = 6
"""Files, TCP ports, devices, abstract sockets and signals: what tier T2 demands."""

T1_LANDLOCK_ABI: Final = 1
"""Files only; the namespaces and seccomp stand alone for the rest, and the tier says so."""

_READ: Final = ("read_file", "read_dir")
_SCRATCH: Final = (
    "read_file",
    "read_dir",
    "write_file",
    "make_reg",
    "make_dir",
    "remove_file",
    "remove_dir",
    "truncate",
)
_STAGE_TWO: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from enclave.workload.isolation.stage_two import main; sys.exit(main())"
)
_BASE_ENVIRONMENT: Final = {
    "PATH": "/nonexistent",
    "HOME": "/tmp",  # noqa: S108 - the compartment's own tmpfs
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONDONTWRITEBYTECODE": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of compartment.

    `entry` is `module:function`, called after confinement with the keyword
    `arguments` (`control`, `settings`, or a handed-over socket); `descriptors` are the names of the
    sockets a broker may hand over at the start; `inputs` says that /bundle and
    /suite exist; `scratch` that /tmp may be written; `own_proc` that Landlock
    leaves /proc readable.
    """

    kind: str
    entry: str
    arguments: tuple[str, ...]
    filter: str
    descriptors: tuple[str, ...]
    inputs: bool
    listener: bool
    scratch: bool
    own_proc: bool
    tripwire_kills_all: bool = True


_SANDBOX: Final = Profile(
    kind="sandbox",
    entry="enclave.workload.sandbox.runner:run",
    arguments=("control", "result", "settings"),
    filter="sandbox",
    descriptors=("result",),
    inputs=True,
    listener=True,
    scratch=True,
    own_proc=False,
)

PROFILES: Final = {
    profile.kind: profile
    for profile in (
        _SANDBOX,
        Profile(
            kind="model_host",
            entry="enclave.workload.model_host.serve:run",
            arguments=("control",),
            filter="model_host",
            descriptors=(),
            inputs=False,
            listener=False,
            scratch=True,
            own_proc=True,
        ),
        Profile(
            kind="gate",
            entry="enclave.workload.gate.room:run",
            arguments=("control", "result", "settings"),
            filter="gate",
            descriptors=("result",),
            inputs=False,
            listener=False,
            scratch=False,
            own_proc=False,
        ),
    )
}

PROBE_KINDS: Final = ("probe", "probe_strict")
_PROBE_ENTRY: Final = "enclave.workload.isolation.probes.room:run"


def choose_profile(kind: str, probe: str) -> Profile:
    """The profile of a kind; for `probe` and `probe_strict`, that of the kind it stands in for.

    Both differ from it in the entry and in that no descriptor is handed over.
    `probe` also differs in that a tripwire kills only the process that touched
    it, so that one compartment can try many.
    """
    if kind in PROBE_KINDS and probe in PROFILES:
        return replace(
            PROFILES[probe],
            kind=kind,
            entry=_PROBE_ENTRY,
            arguments=("control", "settings"),
            descriptors=(),
            tripwire_kills_all=kind == "probe_strict",
        )
    if kind in PROFILES and not probe:
        return PROFILES[kind]
    raise IsolationRefused("compartment_kind", expected=", ".join((*PROFILES, *PROBE_KINDS)))


def landlock_rules(profile: Profile, runtime: Runtime, minimum_abi: int) -> LandlockRules:
    """The Landlock rules of a profile."""
    rules = [PathRule(tree, _READ) for tree in (*runtime.trees, "/etc")]
    rules.append(PathRule("/dev/urandom", ("read_file",)))
    rules.append(PathRule("/dev/null", ("read_file", "write_file")))
    if profile.inputs:
        rules += [PathRule("/bundle", _READ), PathRule("/suite", _READ)]
    if profile.scratch:
        rules.append(PathRule("/tmp", _SCRATCH))  # noqa: S108 - the compartment's own tmpfs
    if profile.own_proc:
        rules.append(PathRule("/proc", _READ))
    ports = (MODEL_PORT,) if profile.listener else ()
    return LandlockRules(tuple(rules), ports, minimum_abi)


def environment(threads: int) -> dict[str, str]:
    """The whole environment of a compartment."""
    count = str(threads)
    return {**_BASE_ENVIRONMENT, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}


def bubblewrap_arguments(
    profile: Profile, runtime: Runtime, limits: Limits, *, bwrap: str, etc: str, threads: int
) -> list[str]:
    """The argument list of bwrap without descriptors: namespaces, mounts, environment, command.

    Mount points are created on bwrap's own empty root only, never beneath
    content that a party supplied (CVE-2026-87766).
    """
    arguments = [bwrap, "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"]
    arguments += ["--as-pid-1", "--cap-drop", "ALL", "--clearenv"]
    arguments += ["--uid", str(COMPARTMENT_ID), "--gid", str(COMPARTMENT_ID)]
    arguments += ["--hostname", "compartment"]
    # Before the runtime, which may lie beneath /tmp itself.
    arguments += ["--size", str(limits.tmp_bytes), "--tmpfs", "/tmp"]  # noqa: S108
    for tree in runtime.trees:
        arguments += ["--ro-bind", tree, tree]
    for path, target in runtime.links:
        arguments += ["--symlink", target, path]
    arguments += ["--ro-bind", etc, "/etc", "--proc", "/proc", "--dev", "/dev"]
    if profile.inputs:
        arguments += ["--size", str(limits.bundle_bytes), "--tmpfs", "/bundle"]
        arguments += ["--size", str(limits.suite_bytes), "--tmpfs", "/suite"]
    arguments += ["--remount-ro", "/", "--remount-ro", "/dev", "--chdir", "/"]
    for name, value in environment(threads).items():
        arguments += ["--setenv", name, value]
    return [*arguments, "--", *python_command(runtime)]


def python_command(runtime: Runtime) -> list[str]:
    """The command of every compartment: isolated, no site, a fixed import path, stage two."""
    return [
        runtime.python,
        *("-I", "-S", "-B", "-X", "utf8", "-c", _STAGE_TWO),
        *runtime.import_path,
    ]
