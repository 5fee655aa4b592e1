"""Requests to answers, one inference at a time on one thread."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch

from enclave.core.errors import ModelRefused
from enclave.workload.model_host import responses
from enclave.workload.model_host.generation import Generation, TokenScore
from enclave.workload.model_host.inference import InferenceEngine, refuse_prompt
from enclave.workload.model_host.requests import ChatRequest, CompletionRequest

MAX_WAITING = 32
_T = TypeVar("_T")


@dataclass
class ServedCounts:
    """What was served so far."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ModelService:
    """Answers parsed requests; every tensor operation happens on its one thread."""

    def __init__(self, engine: InferenceEngine) -> None:
        self.settings = engine.settings
        self.counts = ServedCounts()
        self.stopping = threading.Event()
        self._engine = engine
        self._numbers = itertools.count(1)
        self._waiting = 0
        # OpenMP's thread count belongs to a thread: it is set where the work is done.
        self._thread = ThreadPoolExecutor(
            1, "inference", lambda: torch.set_num_threads(engine.settings.threads)
        )

    def close(self) -> None:
        """End the running generation at its next token and take no further work."""
        self.stopping.set()
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def complete(self, request: CompletionRequest) -> dict[str, Any]:
        """Answer `/v1/completions`."""
        return await self._run(partial(self._complete, request))

    async def chat(self, request: ChatRequest) -> dict[str, Any]:
        """Answer `/v1/chat/completions`."""
        return await self._run(partial(self._chat, request))

    async def _run(self, work: Callable[[], _T]) -> _T:
        if self._waiting >= MAX_WAITING or self.stopping.is_set():
            raise ModelRefused("engine_busy", expected=f"at most {MAX_WAITING} requests waiting")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting -= 1

    def _complete(self, request: CompletionRequest) -> dict[str, Any]:
        choices = []
        prompt_tokens = completion_tokens = 0
        for index, prompt in enumerate(request.prompts):
            choice, used, made = self._complete_one(index, prompt, request)
            choices.append(choice)
            prompt_tokens += used
            completion_tokens += made
        self._count(prompt_tokens, completion_tokens)
        return responses.envelope(
            "text_completion",
            next(self._numbers),
            choices,
            usage=responses.usage(prompt_tokens, completion_tokens),
        )

    def _complete_one(
        self, index: int, prompt: str | tuple[int, ...], request: CompletionRequest
    ) -> tuple[dict[str, Any], int, int]:
        text, tokens, starts = self._read_prompt(prompt)
        sampling = request.sampling
        refuse_prompt(self._engine, tokens, sampling.max_tokens)
        top = sampling.top_logprobs
        scores: list[TokenScore] = []
        generation = Generation()
        if request.echo and top is not None:
            # One pass gives the prompt's scores and, if one token is asked for, that token.
            following = sampling if sampling.max_tokens == 1 else None
            scores, generation = self._engine.score(tokens, top, following)
        if sampling.max_tokens > generation.sampled:
            generation = self._engine.generate(tokens, sampling, cancelled=self.stopping)
        logprobs = None
        if top is not None:
            scores = [*scores, *generation.tokens]
            starts = starts if request.echo else []
            starts = [*starts, *self._starts(len(text) * request.echo, generation.tokens)]
            logprobs = responses.completion_logprobs(scores, starts, self._decode)
        whole = (text if request.echo else "") + generation.text
        choice = responses.completion_choice(index, whole, generation, logprobs)
        return choice, len(tokens), generation.sampled

    def _chat(self, request: ChatRequest) -> dict[str, Any]:
        tokens, request = self._prepare_chat(request)
        generation = self._engine.generate(tokens, request.sampling, cancelled=self.stopping)
        logprobs = None
        if request.sampling.top_logprobs is not None:
            logprobs = responses.chat_logprobs(generation.tokens, self._decode)
        self._count(len(tokens), generation.sampled)
        return responses.envelope(
            "chat.completion",
            next(self._numbers),
            [responses.chat_choice(generation, logprobs)],
            usage=responses.usage(len(tokens), generation.sampled),
        )

    async def stream(
        self, request: CompletionRequest | ChatRequest
    ) -> AsyncIterator[dict[str, Any]]:
        """The chunks of a streamed answer; a refusal is raised before the first one."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[str, list[TokenScore]] | None] = asyncio.Queue()
        abandoned = threading.Event()
        if isinstance(request, ChatRequest):
            kind = "chat.completion.chunk"
            tokens, request = await self._run(partial(self._prepare_chat, request))
        else:
            kind = "text_completion"
            tokens = await self._run(partial(self._prepare_completion, request))
        number = next(self._numbers)
        sampling = request.sampling

        def work() -> Generation:
            def emit(text: str, scores: list[TokenScore]) -> None:
                if self.stopping.is_set():
                    abandoned.set()
                loop.call_soon_threadsafe(pieces.put_nowait, (text, scores))

            try:
                return self._engine.generate(tokens, sampling, emit, abandoned)
            finally:
                loop.call_soon_threadsafe(pieces.put_nowait, None)

        running = asyncio.ensure_future(self._run(work))
        running.add_done_callback(lambda _done: pieces.put_nowait(None))
        try:
            if kind == "chat.completion.chunk":
                first = responses.chat_delta({"role": "assistant", "content": ""}, None)
                yield responses.envelope(kind, number, [first])
            sent = 0
            while (piece := await pieces.get()) is not None:
                yield responses.envelope(kind, number, [self._delta(kind, *piece, sampling, sent)])
                sent += len(piece[0])
            generation = await running
        finally:
            # The client went away: the thread stops at its next token.
            abandoned.set()
        self._count(len(tokens), generation.sampled)
        yield responses.envelope(kind, number, [self._last(kind, generation.finish)])
        if request.include_usage:
            counts = responses.usage(len(tokens), generation.sampled)
            yield responses.envelope(kind, number, [], usage=counts)

    def _delta(
        self, kind: str, text: str, scores: list[TokenScore], sampling: Any, sent: int
    ) -> dict[str, Any]:
        scored = sampling.top_logprobs is not None
        if kind == "text_completion":
            starts = self._starts(sent, scores)
            logprobs = responses.completion_logprobs(scores, starts, self._decode)
            return responses.completion_delta(text, None, logprobs if scored else None)
        logprobs = responses.chat_logprobs(scores, self._decode)
        return responses.chat_delta({"content": text}, None, logprobs if scored else None)

    @staticmethod
    def _last(kind: str, finish: str) -> dict[str, Any]:
        if kind == "text_completion":
            return responses.completion_delta("", finish)
        return responses.chat_delta({}, finish)

    def _prepare_completion(self, request: CompletionRequest) -> list[int]:
        _, tokens, _ = self._read_prompt(request.prompts[0])
        refuse_prompt(self._engine, tokens, request.sampling.max_tokens)
        return tokens

    def _prepare_chat(self, request: ChatRequest) -> tuple[list[int], ChatRequest]:
        tokens = self._engine.encode_chat(request.messages)
        sampling = request.sampling
        if not request.limited:
            # Without a limit of its own a reply may use what the context leaves.
            room = max(1, self.settings.max_context - len(tokens))
            sampling = replace(sampling, max_tokens=min(sampling.max_tokens, room))
        refuse_prompt(self._engine, tokens, sampling.max_tokens)
        return tokens, replace(request, sampling=sampling)

    def _read_prompt(self, prompt: str | tuple[int, ...]) -> tuple[str, list[int], list[int]]:
        if isinstance(prompt, str):
            tokens, starts = self._engine.encode(prompt)
            return prompt, tokens, starts
        refuse_prompt(self._engine, prompt, 0)
        starts = []
        position = 0
        for token in prompt:
            starts.append(position)
            position += len(self._decode(token))
        return self._engine.decode(prompt), list(prompt), starts

    def _starts(self, position: int, scores: list[TokenScore]) -> list[int]:
        starts = []
        for score in scores:
            starts.append(position)
            position += len(self._decode(score.token))
        return starts

    def _decode(self, token: int) -> str:
        return self._engine.decode([token])

    def _count(self, prompt_tokens: int, completion_tokens: int) -> None:
        self.counts.requests += 1
        self.counts.prompt_tokens += prompt_tokens
        self.counts.completion_tokens += completion_tokens
