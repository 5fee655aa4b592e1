"""Times in documents: RFC 3339, UTC, whole seconds, one spelling."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from enclave.core.errors import DocumentRefused

_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z")


def parse_time(text: str) -> datetime:
    """Parse `YYYY-MM-DDTHH:MM:SSZ` to an aware datetime."""
    if _TIME.match(text) is None:
        raise DocumentRefused("document_time", expected="YYYY-MM-DDTHH:MM:SSZ")
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise DocumentRefused("document_time", expected="a calendar time") from None


def print_time(moment: datetime) -> str:
    """Print an aware datetime in the one spelling, seconds truncated."""
    if moment.tzinfo is None:
        raise ValueError("naive datetime")
    # strftime does not pad years below 1000 everywhere; isoformat does.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def print_slot(moment: datetime, slot_seconds: int) -> str:
    """The start of the time slot that holds `moment`: what leaves the enclave instead of a time."""
    seconds = int(moment.timestamp())
    return print_time(datetime.fromtimestamp(seconds - seconds % slot_seconds, UTC))
