"""Whether memory can reach a disk: only the session memory is proof against it by itself."""

from __future__ import annotations

from pathlib import Path

from enclave.core.errors import IsolationRefused


def swap_in_use(table: str = "/proc/swaps") -> bool:
    """Whether any swap area is active; an unreadable table counts as active."""
    try:
        lines = Path(table).read_text("utf-8", "replace").splitlines()
    except OSError:
        return True
    return len(lines) > 1


def refuse_swap(table: str = "/proc/swaps") -> None:
    """Refused with `swap_on` while swap is active: prompts and keys could be written out."""
    if swap_in_use(table):
        raise IsolationRefused(
            "swap_on", expected="no active swap", got="an active swap area", hint="swapoff -a"
        )
