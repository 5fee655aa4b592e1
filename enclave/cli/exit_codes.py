"""Exit codes of `doubleblind`: one number a stage, stable, documented in docs/cli.md."""

from __future__ import annotations

import errno
from enum import IntEnum

from attestation.errors import AttestationError
from enclave.core.errors import Refusal


class ExitCode(IntEnum):
    """What a command's exit status says."""

    OK = 0
    MISUSE = 1
    MALFORMED = 2
    SIGNATURE = 3
    ENDORSEMENT = 4
    POLICY = 5
    BUDGET = 6
    UNREACHABLE = 7
    UPLOAD = 8
    RUN = 9
    RECEIPT = 10
    INCOMPLETE = 11
    WORKLOAD = 70


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "done; every check the command makes was verified",
    ExitCode.MISUSE: "misuse of the command, an unsafe state directory, or an unexpected fault",
    ExitCode.MALFORMED: "a document, an artifact or evidence is malformed",
    ExitCode.SIGNATURE: "a signature, a binding or attestation evidence was refused",
    ExitCode.ENDORSEMENT: "an endorsement (certificate, collateral) is missing or not valid now",
    ExitCode.POLICY: "a policy, the plan, an approval, a grant or the session refuses",
    ExitCode.BUDGET: "a budget or the number of runs is spent",
    ExitCode.UNREACHABLE: "the enclave can not be reached, or did not answer in time",
    ExitCode.UPLOAD: "an upload or a disk write failed; what was acknowledged stays",
    ExitCode.RUN: "the run or the release was refused; no result came out",
    ExitCode.RECEIPT: "the receipt does not prove what it claims",
    ExitCode.INCOMPLETE: "the audit found no fault but could not check everything",
    ExitCode.WORKLOAD: "`serve`: the workload refused to start; its message says why",
}

_BY_STAGE: dict[str, ExitCode] = {
    "document": ExitCode.MALFORMED,
    "sealed": ExitCode.MALFORMED,
    "model": ExitCode.RUN,
    "binding": ExitCode.SIGNATURE,
    "plan": ExitCode.POLICY,
    "approval": ExitCode.POLICY,
    "grant": ExitCode.POLICY,
    "session": ExitCode.POLICY,
    "client": ExitCode.POLICY,
    "channel": ExitCode.UNREACHABLE,
    "upload": ExitCode.UPLOAD,
    "isolation": ExitCode.RUN,
    "run": ExitCode.RUN,
    "release": ExitCode.RUN,
    "receipt": ExitCode.RECEIPT,
    "state": ExitCode.MISUSE,
    "protocol": ExitCode.MISUSE,
}

_BY_ATTESTATION_STAGE: dict[str, ExitCode] = {
    "parse": ExitCode.MALFORMED,
    "verify": ExitCode.SIGNATURE,
    "endorse": ExitCode.ENDORSEMENT,
    "appraise": ExitCode.POLICY,
    "policy": ExitCode.MALFORMED,
    "collect": ExitCode.MISUSE,
}

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)

_BY_CODE: dict[str, ExitCode] = {
    "grant_run_budget_spent": ExitCode.BUDGET,
    "grant_run_past_max": ExitCode.BUDGET,
    "run_past_max": ExitCode.BUDGET,
    "release_budget_exceeded": ExitCode.BUDGET,
    "destination_full": ExitCode.UPLOAD,
    "destination_unwritable": ExitCode.UPLOAD,
}


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code of anything that ended a command."""
    if isinstance(error, Refusal):
        if error.code in _BY_CODE:
            return _BY_CODE[error.code]
        return _BY_STAGE.get(error.stage, ExitCode.MISUSE)
    if isinstance(error, AttestationError):
        return _BY_ATTESTATION_STAGE.get(error.stage, ExitCode.MISUSE)
    if isinstance(error, OSError):
        return ExitCode.UPLOAD if error.errno in _DISK_ERRORS else ExitCode.MISUSE
    return ExitCode.MISUSE
