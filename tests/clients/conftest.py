"""What the client tests share."""

from __future__ import annotations

from datetime import UTC, datetime

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
