"""OpenAI requests as closed, bounded values.

A parameter that is not supported is refused unless it has its neutral value:
nothing a client asks for is dropped in silence.  Sampling is the plan's; a
request may repeat it, and may choose a seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from enclave.core.errors import ModelRefused
from enclave.core.plan_terms import Engine
from enclave.workload.model_host.generation import Sampling

MODEL_ID = "model"
MAX_REQUEST_BYTES = 1 << 20
MAX_PROMPTS = 64
MAX_MESSAGES = 512
MAX_STOPS = 8
MAX_STOP_LENGTH = 256
MAX_TOP_LOGPROBS = 20
_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "best_of": (1,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "n": (1,),
    "parallel_tool_calls": (True, False),
    "presence_penalty": (0,),
    "response_format": ({"type": "text"},),
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none",),
    "tools": ([],),
}
"""Parameters that are accepted only with a value that asks for nothing (null also)."""
_MAX_SEED = 2**63 - 1
_DEFAULT_TOKENS = 16  # of the completions API


@dataclass(frozen=True)
class CompletionRequest:
    """A `/v1/completions` request; each prompt is text or token numbers."""

    prompts: tuple[str | tuple[int, ...], ...]
    echo: bool
    sampling: Sampling
    stream: bool
    include_usage: bool


@dataclass(frozen=True)
class ChatRequest:
    """A `/v1/chat/completions` request; messages have `role` and `content` only."""

    messages: tuple[dict[str, str], ...]
    sampling: Sampling
    limited: bool
    stream: bool
    include_usage: bool


def parse_body(data: bytes) -> dict[str, Any]:
    """A request body as a JSON object."""
    try:
        value = json.loads(
            data.decode("utf-8", "strict"),
            object_pairs_hook=_distinct,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError):
        raise ModelRefused("request_not_json", expected="a JSON object") from None
    if not isinstance(value, dict):
        raise ModelRefused("request_not_json", expected="a JSON object")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ModelRefused("request_not_json", expected="each key once")
    return fields


def _refuse_constant(_text: str) -> Any:
    raise ModelRefused("request_not_json", expected="finite numbers")


def parse_completion(body: Mapping[str, Any], engine: Engine) -> CompletionRequest:
    """Read a completions request."""
    reader = _Reader(body)
    prompts = _prompts(reader.take("prompt"))
    logprobs = reader.integer("logprobs", 0, MAX_TOP_LOGPROBS)
    sampling = _sampling(
        reader, engine, reader.max_tokens(engine, _DEFAULT_TOKENS, "max_tokens"), logprobs
    )
    request = CompletionRequest(
        prompts=prompts,
        echo=reader.flag("echo"),
        sampling=sampling,
        stream=reader.flag("stream"),
        include_usage=reader.include_usage(),
    )
    reader.done()
    if request.stream and (len(prompts) != 1 or request.echo):
        raise ModelRefused("parameter_unsupported", expected="stream: one prompt, no echo")
    return request


def parse_chat(body: Mapping[str, Any], engine: Engine) -> ChatRequest:
    """Read a chat request."""
    reader = _Reader(body)
    messages = _messages(reader.take("messages"))
    asked = reader.flag("logprobs")
    top = reader.integer("top_logprobs", 0, MAX_TOP_LOGPROBS)
    if top is not None and not asked:
        raise ModelRefused("parameter_value", expected="top_logprobs: with logprobs")
    limited = any(body.get(name) is not None for name in ("max_tokens", "max_completion_tokens"))
    limit = reader.max_tokens(engine, engine.max_new_tokens, "max_tokens", "max_completion_tokens")
    sampling = _sampling(reader, engine, limit, (top or 0) if asked else None)
    request = ChatRequest(
        messages=messages,
        sampling=sampling,
        limited=limited,
        stream=reader.flag("stream"),
        include_usage=reader.include_usage(),
    )
    reader.done()
    return request


class _Reader:
    """Takes each parameter once; `done` refuses what is left and not neutral."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._left = dict(body)
        if self._left.pop("model", None) != MODEL_ID:
            raise ModelRefused("model_not_found", expected=f"model: {MODEL_ID}")
        user = self._left.pop("user", None)
        if user is not None and not isinstance(user, str):
            raise ModelRefused("parameter_type", expected="user: string")

    def take(self, name: str) -> Any:
        return self._left.pop(name, None)

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise ModelRefused("parameter_type", expected=f"{name}: boolean")
        return bool(value)

    def integer(self, name: str, low: int, high: int) -> int | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise ModelRefused("parameter_type", expected=f"{name}: integer")
        if not low <= value <= high:
            raise ModelRefused("parameter_value", expected=f"{name}: {low} to {high}")
        return value

    def max_tokens(self, engine: Engine, default: int, *names: str) -> int:
        given = [self.integer(name, 0, engine.max_new_tokens) for name in names]
        values = {value for value in given if value is not None}
        if len(values) > 1:
            raise ModelRefused("parameter_value", expected="one token limit")
        return values.pop() if values else min(default, engine.max_new_tokens)

    def planned(self, name: str, planned: str) -> None:
        value = self.take(name)
        if value is None:
            return
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise ModelRefused("parameter_type", expected=f"{name}: number")
        if Decimal(repr(value)) != Decimal(planned):
            raise ModelRefused("sampling_not_planned", expected=f"{name}: {planned}")

    def include_usage(self) -> bool:
        options = self.take("stream_options")
        if options is None:
            return False
        if not isinstance(options, dict) or set(options) != {"include_usage"}:
            raise ModelRefused("parameter_value", expected="stream_options: include_usage")
        return options["include_usage"] is True

    def done(self) -> None:
        for name, value in self._left.items():
            if value is None:
                continue
            if name not in _NEUTRAL or value not in _NEUTRAL[name]:
                known = name if name in _NEUTRAL else "known parameters"
                raise ModelRefused("parameter_unsupported", expected=f"{known}: neutral or absent")


def _sampling(reader: _Reader, engine: Engine, limit: int, logprobs: int | None) -> Sampling:
    reader.planned("temperature", engine.temperature)
    reader.planned("top_p", engine.top_p)
    seed = reader.integer("seed", 0, _MAX_SEED)
    return Sampling(
        max_tokens=limit,
        temperature=Decimal(engine.temperature),
        top_p=Decimal(engine.top_p),
        seed=engine.seed if seed is None else seed,
        stop=_stops(reader.take("stop")),
        top_logprobs=logprobs,
    )


def _stops(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MAX_STOPS:
        raise ModelRefused("parameter_type", expected=f"stop: text, or up to {MAX_STOPS} texts")
    for stop in stops:
        if not isinstance(stop, str) or not 1 <= len(stop) <= MAX_STOP_LENGTH:
            raise ModelRefused("parameter_value", expected="stop: 1 to 256 characters each")
    return tuple(stops)


def _prompts(value: Any) -> tuple[str | tuple[int, ...], ...]:
    if isinstance(value, str) or _is_tokens(value):
        value = [value]
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_PROMPTS:
        raise ModelRefused("parameter_type", expected="prompt: text, tokens, or a list of either")
    prompts: list[str | tuple[int, ...]] = []
    for prompt in value:
        if isinstance(prompt, str):
            prompts.append(prompt)
        elif _is_tokens(prompt):
            prompts.append(tuple(prompt))
        else:
            raise ModelRefused("parameter_type", expected="prompt: text or tokens")
    return tuple(prompts)


def _is_tokens(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(entry, int) and not isinstance(entry, bool) for entry in value)
    )


def _messages(value: Any) -> tuple[dict[str, str], ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_MESSAGES:
        raise ModelRefused("parameter_type", expected=f"messages: 1 to {MAX_MESSAGES} messages")
    return tuple(_message(entry) for entry in value)


def _message(entry: Any) -> dict[str, str]:
    if not isinstance(entry, dict):
        raise ModelRefused("parameter_type", expected="messages: objects")
    given = {name for name, content in entry.items() if content is not None}
    if given != {"role", "content"}:
        raise ModelRefused("parameter_unsupported", expected="messages: role and content")
    if entry["role"] not in ("system", "user", "assistant"):
        raise ModelRefused("parameter_value", expected="role: system, user or assistant")
    content = entry["content"]
    if isinstance(content, list):
        content = "".join(_text_part(part) for part in content)
    if not isinstance(content, str):
        raise ModelRefused("parameter_type", expected="content: text")
    return {"role": entry["role"], "content": content}


def _text_part(part: Any) -> str:
    if not isinstance(part, dict) or set(part) != {"type", "text"} or part["type"] != "text":
        raise ModelRefused("parameter_unsupported", expected="content: text parts")
    if not isinstance(part["text"], str):
        raise ModelRefused("parameter_type", expected="text: string")
    return part["text"]
