"""Times in documents: RFC 3339, UTC, whole seconds, one spelling."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z")


def parse_time(text: str) -> datetime:
    """Parse `YYYY-MM-DDTHH:MM:SSZ` to an aware datetime; raises ValueError."""
    if _TIME.match(text) is None:
        raise ValueError("YYYY-MM-DDTHH:MM:SSZ")
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def print_time(moment: datetime) -> str:
    """Print an aware datetime in the one spelling, seconds truncated."""
    if moment.tzinfo is None:
        raise ValueError("naive datetime")
    utc = moment.astimezone(UTC)
    # strftime("%Y") does not pad years below 1000 on every platform.
    return f"{utc.year:04d}-" + utc.strftime("%m-%dT%H:%M:%SZ")
