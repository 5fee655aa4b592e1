"""A thin OpenAI client over one kept-alive connection, with nothing but the standard library."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

MAX_RESPONSE_BYTES = 256 * 1024 * 1024
_MODEL = "model"


class ModelRequestError(ValueError):
    """The model host refused a request; `code` is its reason."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class ModelUnavailableError(Exception):
    """The model host can not be reached, or did not answer in its own form."""


class _Connection(http.client.HTTPConnection):
    """Connects by number: no resolver, and TCP named as such (an unnamed protocol waits)."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self.sock.settimeout(self.timeout)
        self.sock.connect((self.host, self.port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class ModelClient:
    """The model as a bundle sees it.

    `max_requests` and `max_tokens` are the bundle's own declared limits; going
    over them raises ModelRequestError `limit_requests` or `limit_tokens`.
    """

    def __init__(
        self, url: str, *, max_requests: int, max_tokens: int, timeout: float = 600.0
    ) -> None:
        parts = urlsplit(url)
        self._connection = _Connection(parts.hostname or "", parts.port or 80, timeout=timeout)
        self._requests_left = max_requests
        self._max_tokens = max_tokens

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def complete(
        self,
        prompt: str | Sequence[str],
        *,
        max_tokens: int,
        echo: bool = False,
        logprobs: int | None = None,
        stop: Sequence[str] = (),
        seed: int | None = None,
    ) -> list[dict[str, Any]]:
        """The choices of `/v1/completions`, one a prompt, in OpenAI's form."""
        answer = self._post(
            "/v1/completions",
            {
                "prompt": prompt if isinstance(prompt, str) else list(prompt),
                "max_tokens": max_tokens,
                "echo": echo,
                "logprobs": logprobs,
                "stop": list(stop),
                "seed": seed,
            },
        )
        choices: list[dict[str, Any]] = answer["choices"]
        return choices

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        max_tokens: int,
        stop: Sequence[str] = (),
        seed: int | None = None,
    ) -> str:
        """The text of the model's reply."""
        answer = self._post(
            "/v1/chat/completions",
            {
                "messages": [dict(message) for message in messages],
                "max_tokens": max_tokens,
                "stop": list(stop),
                "seed": seed,
            },
        )
        reply: str = answer["choices"][0]["message"]["content"]
        return reply

    def score_choices(self, prompt: str, choices: Sequence[str]) -> list[float]:
        """The log-likelihood of each choice as a continuation of `prompt`.

        The sum over the tokens that end behind the prompt; a choice should
        begin with its own space, so that no token straddles the border.
        """
        scored = self.complete(
            [prompt + choice for choice in choices], max_tokens=0, echo=True, logprobs=0
        )
        return [_sum_behind(choice["logprobs"], len(prompt)) for choice in scored]

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        if self._requests_left <= 0:
            raise ModelRequestError("limit_requests")
        if body["max_tokens"] > self._max_tokens:
            raise ModelRequestError("limit_tokens")
        self._requests_left -= 1
        data = json.dumps({"model": _MODEL, **body}).encode()
        try:
            self._connection.request(
                "POST", path, data, {"Content-Type": "application/json", "Host": "model"}
            )
            response = self._connection.getresponse()
            answer = json.loads(response.read(MAX_RESPONSE_BYTES))
        except (OSError, http.client.HTTPException, ValueError):
            self._connection.close()
            raise ModelUnavailableError from None
        if response.status != http.client.OK:
            raise ModelRequestError(_error_code(answer))
        return answer


def _error_code(answer: Any) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) else "unknown"


def _sum_behind(logprobs: Mapping[str, Any], border: int) -> float:
    starts: list[int] = logprobs["text_offset"]
    values: list[float | None] = logprobs["token_logprobs"]
    first = len(starts)
    # A token ends where the next begins; the last one ends the text.
    while first > 0 and (first == len(starts) or starts[first] > border):
        first -= 1
    return sum(value for value in values[first:] if value is not None)
