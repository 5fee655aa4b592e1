"""Attempts to use up what the machine has."""

from __future__ import annotations

import errno
import mmap
import os
import signal
from typing import Final

from enclave.workload.isolation.probes.probe import SANDBOX_ONLY, Outcome, Probe, Targets

_MIB: Final = 1024 * 1024


def _processes(targets: Targets) -> Outcome:
    # Children wait for an end that never comes: they cost nothing but their number.
    quiet, keep = os.pipe()
    children: list[int] = []
    outcome: Outcome = "open"
    try:
        while len(children) <= targets.processes:
            pid = os.fork()
            if pid == 0:
                os.read(quiet, 1)
                os._exit(0)
            children.append(pid)
    except BlockingIOError:
        outcome = "limited"
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
        os.close(quiet)
        os.close(keep)
    return outcome


def _memory(targets: Targets) -> Outcome:
    try:
        mmap.mmap(-1, targets.memory_bytes + _MIB).close()
    except OSError as error:
        if error.errno == errno.ENOMEM:
            return "limited"
        raise
    return "open"


def _disk(targets: Targets) -> Outcome:
    path = os.path.join(targets.scratch, "fill")
    block = bytes(_MIB)
    try:
        with open(path, "wb", buffering=0) as file:
            for _ in range(targets.tmp_bytes // _MIB + 1):
                if file.write(block) < _MIB:
                    return "limited"
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return "limited"
        raise
    finally:
        os.unlink(path)
    return "open"


def _file_size(targets: Targets) -> Outcome:
    path = os.path.join(targets.scratch, "large")
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, b"x", targets.file_bytes)
    except OSError as error:
        if error.errno == errno.EFBIG:
            return "limited"
        raise
    finally:
        os.close(descriptor)
        os.unlink(path)
    return "open"


def _open_files(targets: Targets) -> Outcome:
    copies: list[int] = []
    try:
        while len(copies) < targets.open_files:
            copies.append(os.dup(0))
    except OSError as error:
        if error.errno == errno.EMFILE:
            return "limited"
        raise
    finally:
        for copy in copies:
            os.close(copy)
    return "open"


PROBES: Final = (
    Probe("fork_bomb", "fork bomb", _processes, "limited", kinds=SANDBOX_ONLY),
    Probe("memory_bomb", "memory bomb", _memory, "limited"),
    Probe("disk_fill", "fill the disk", _disk, "limited", kinds=SANDBOX_ONLY),
    Probe("file_size", "one huge file", _file_size, "limited", kinds=SANDBOX_ONLY),
    Probe("open_files", "use up descriptors", _open_files, "limited"),
)
