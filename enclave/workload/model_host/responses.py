"""OpenAI responses. No clock and no randomness: the same request has the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from enclave.core.errors import ModelRefused
from enclave.workload.model_host.generation import Generation, TokenScore
from enclave.workload.model_host.requests import MODEL_ID

Decode = Callable[[int], str]
_STATUS: Mapping[str, int] = {
    "model_not_found": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "request_too_large": 413,
    "engine_failed": 500,
    "engine_busy": 503,
}


def error_status(refusal: ModelRefused) -> int:
    """The HTTP status of a refusal."""
    return _STATUS.get(refusal.code, 400)


def error_body(refusal: ModelRefused) -> dict[str, Any]:
    """A refusal in OpenAI's form. It names the rule, never the prompt."""
    status = error_status(refusal)
    return {
        "error": {
            "message": refusal.code
            + (f": expected {refusal.expected}" if refusal.expected else ""),
            "type": "invalid_request_error" if status < 500 else "server_error",
            "param": None,
            "code": refusal.code,
        }
    }


def models_body() -> dict[str, Any]:
    """The answer to `/v1/models`."""
    model = {"id": MODEL_ID, "object": "model", "created": 0, "owned_by": "model-owner"}
    return {"object": "list", "data": [model]}


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Token counts."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def envelope(kind: str, number: int, choices: Sequence[Any], **more: Any) -> dict[str, Any]:
    """The outer object of a response or a stream chunk."""
    prefix = "cmpl" if kind == "text_completion" else "chatcmpl"
    return {
        "id": f"{prefix}-{number}",
        "object": kind,
        "created": 0,
        "model": MODEL_ID,
        "choices": list(choices),
        **more,
    }


def completion_choice(
    index: int, text: str, generation: Generation, logprobs: dict[str, Any] | None
) -> dict[str, Any]:
    """One choice of `/v1/completions`."""
    return {
        "index": index,
        "text": text,
        "logprobs": logprobs,
        "finish_reason": generation.finish,
    }


def completion_logprobs(
    scores: Sequence[TokenScore], starts: Sequence[int], decode: Decode
) -> dict[str, Any]:
    """The classic log-probability lists; the first token of a text has none."""
    return {
        "tokens": [decode(score.token) for score in scores],
        "token_logprobs": [score.logprob for score in scores],
        "top_logprobs": [
            None if score.logprob is None else _rivals(score, decode) for score in scores
        ],
        "text_offset": list(starts),
    }


def _rivals(score: TokenScore, decode: Decode) -> dict[str, float]:
    rivals: dict[str, float] = {}
    for token, logprob in score.top:
        # Different tokens may print alike (halves of a character): the likelier one stays.
        rivals.setdefault(decode(token), logprob)
    return rivals


def chat_choice(generation: Generation, logprobs: dict[str, Any] | None) -> dict[str, Any]:
    """The one choice of `/v1/chat/completions`."""
    return {
        "index": 0,
        "message": {"role": "assistant", "content": generation.text},
        "logprobs": logprobs,
        "finish_reason": generation.finish,
    }


def chat_logprobs(scores: Sequence[TokenScore], decode: Decode) -> dict[str, Any]:
    """Log-probabilities of the reply's tokens in the chat form."""
    return {
        "content": [
            {
                **_chat_token(score.token, score.logprob, decode),
                "top_logprobs": [
                    _chat_token(token, logprob, decode) for token, logprob in score.top
                ],
            }
            for score in scores
        ]
    }


def _chat_token(token: int, logprob: float | None, decode: Decode) -> dict[str, Any]:
    text = decode(token)
    return {"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8"))}


def completion_delta(
    text: str, finish: str | None, logprobs: dict[str, Any] | None = None
) -> dict[str, Any]:
    """One streamed piece of a completion."""
    return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}


def chat_delta(
    delta: dict[str, str], finish: str | None, logprobs: dict[str, Any] | None = None
) -> dict[str, Any]:
    """One streamed piece of a chat reply."""
    return {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
