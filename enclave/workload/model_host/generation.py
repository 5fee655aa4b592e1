"""How tokens are chosen and what came out: values without torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal


@dataclass(frozen=True)
class TokenScore:
    """A token, its log-probability (None for the first) and its best rivals."""

    token: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen: temperature 0 is the likeliest token."""

    max_tokens: int
    temperature: Decimal
    top_p: Decimal
    seed: int
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None


@dataclass
class Generation:
    """What one request produced; `text` ends before any stop string.

    `tokens` has no end token, `sampled` counts it.
    """

    text: str = ""
    tokens: list[TokenScore] = field(default_factory=list)
    sampled: int = 0
    finish: str = "length"
