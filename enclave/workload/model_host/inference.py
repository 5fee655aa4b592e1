"""Scoring and generation, one request at a time, in the order of a plain loop.

With batch 1, fp32 and fixed threads the numbers equal those of
`AutoModelForCausalLM` called directly (tests/model/test_plain_equality.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import torch
from tokenizers.decoders import DecodeStream
from transformers import DynamicCache

from enclave.core.errors import ModelRefused
from enclave.core.plan_terms import Engine
from enclave.workload.model_host.generation import Generation, Sampling, TokenScore
from enclave.workload.model_host.loading import LoadedModel

_ROWS = 256  # rows of logits that become log-probabilities at a time: bounds memory


Emit = Callable[[str, list[TokenScore]], None]
"""Hears of text that can no longer change, and of the tokens it is made of."""


def _discard(_text: str, _tokens: list[TokenScore]) -> None:
    pass


class InferenceEngine:
    """The loaded model under the plan's settings. Not thread-safe: one caller at a time."""

    def __init__(self, model: LoadedModel, engine: Engine) -> None:
        self._model = model
        self._network = model.network
        self.settings = engine
        torch.manual_seed(engine.seed)

    def encode(self, text: str) -> tuple[list[int], list[int]]:
        """Tokens of a raw prompt and the character at which each begins."""
        encoding = self._model.tokenizer.encode(text)
        starts = [0]
        for _, end in encoding.offsets[:-1]:
            # A token begins where the one before ended: offsets may be trimmed of spaces.
            starts.append(max(starts[-1], end))
        return encoding.ids, starts[: len(encoding.ids)]

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Tokens of a chat, through the pinned template."""
        text = self._model.template.render(messages)
        ids: list[int] = self._model.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, tokens: Sequence[int], *, special: bool = True) -> str:
        """The text of tokens; `special` keeps tokens such as end-of-turn."""
        text: str = self._model.tokenizer.decode(list(tokens), skip_special_tokens=not special)
        return text

    def known_token(self, token: int) -> bool:
        """Whether the number is a token of the model."""
        rows: int = self._network.get_input_embeddings().weight.shape[0]
        return 0 <= token < rows

    @torch.inference_mode()
    def score(
        self, tokens: Sequence[int], top: int, following: Sampling | None = None
    ) -> tuple[list[TokenScore], Generation]:
        """Log-probability of each token after those before it, with the `top` best rivals.

        With `following` (of one token), that token comes out of the same pass.
        """
        ids = torch.tensor([list(tokens)])
        every = self._network(ids, use_cache=False).logits[0]
        logits = every[:-1]
        scores = [TokenScore(tokens[0], None)]
        for start in range(0, logits.shape[0], _ROWS):
            rows = torch.log_softmax(logits[start : start + _ROWS].float(), -1)
            own_ids = ids[0, start + 1 : start + 1 + rows.shape[0]]
            own = rows.gather(1, own_ids[:, None])[:, 0].tolist()
            rivals = _best(rows, top)
            scores += [
                TokenScore(int(token), value, best)
                for token, value, best in zip(own_ids, own, rivals, strict=True)
            ]
        output = _Output(self._model, following.stop if following else (), _discard)
        if following is not None:
            output.add(_Chooser(following).choose(every[-1].float()))
        return scores, output.finish()

    @torch.inference_mode()
    def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        emit: Emit = _discard,
        cancelled: threading.Event | None = None,
    ) -> Generation:
        """Continue `prompt` until an end token, a stop string, the limit or `cancelled`."""
        chooser = _Chooser(sampling)
        output = _Output(self._model, sampling.stop, emit)
        cache = DynamicCache(config=self._network.config)
        ids = torch.tensor([list(prompt)])
        while output.generation.sampled < sampling.max_tokens:
            if cancelled is not None and cancelled.is_set():
                break
            logits = self._network(ids, cache=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
            score = chooser.choose(logits.float())
            if output.add(score):
                break
            ids = torch.tensor([[score.token]])
        return output.finish()


class _Chooser:
    """Chooses the next token; its own generator makes a seed mean the same each time."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._temperature = float(sampling.temperature)
        self._top_p = float(sampling.top_p)
        self._random = torch.Generator().manual_seed(sampling.seed)

    def choose(self, logits: torch.Tensor) -> TokenScore:
        token = int(logits.argmax()) if self._temperature == 0 else self._draw(logits)
        if self._sampling.top_logprobs is None:
            return TokenScore(token, None)
        row = torch.log_softmax(logits, -1)
        return TokenScore(
            token, row[token].item(), _best(row[None], self._sampling.top_logprobs)[0]
        )

    def _draw(self, logits: torch.Tensor) -> int:
        ordered, order = torch.softmax(logits / self._temperature, -1).sort(
            descending=True, stable=True
        )
        # Keep the smallest set whose mass reaches top_p: drop what lies behind it.
        ordered[ordered.cumsum(-1) - ordered >= self._top_p] = 0
        return int(order[torch.multinomial(ordered, 1, generator=self._random)])


class _Output:
    """Collects tokens, finds end tokens and stop strings, hands on settled text."""

    def __init__(
        self,
        model: LoadedModel,
        stop: Sequence[str],
        emit: Emit,
    ) -> None:
        self.generation = Generation()
        self._model = model
        self._stop = tuple(stop)
        self._emit = emit
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._seen = ""
        self._sent = 0
        self._stopped = False
        self._pending: list[TokenScore] = []

    def add(self, score: TokenScore) -> bool:
        """Take one token; true when generation ends with it."""
        self.generation.sampled += 1
        if score.token in self._model.end_tokens:
            self.generation.finish = "stop"
            return True
        self.generation.tokens.append(score)
        self._pending.append(score)
        self._ids.append(score.token)
        self._seen += self._stream.step(self._model.tokenizer, score.token) or ""
        if self._cut_at_stop():
            return True
        # Text that may be the beginning of a stop string is not settled yet.
        held = max((_overlap(self._seen, stop) for stop in self._stop), default=0)
        self._send(len(self._seen) - held)
        return False

    def finish(self) -> Generation:
        """Settle the rest; the whole text is decoded once more, as a plain loop would."""
        whole: str = self._model.tokenizer.decode(self._ids, skip_special_tokens=True)
        if not self._stopped:
            self._seen = whole
            self._cut_at_stop()
        self._send(len(self._seen))
        self.generation.text = self._seen
        return self.generation

    def _cut_at_stop(self) -> bool:
        found = [at for stop in self._stop if (at := self._seen.find(stop)) >= 0]
        if not found:
            return False
        self._seen = self._seen[: min(found)]
        self._stopped = True
        self.generation.finish = "stop"
        return True

    def _send(self, settled: int) -> None:
        if settled > self._sent:
            self._emit(self._seen[self._sent : settled], self._pending)
            self._pending = []
            self._sent = settled


def _overlap(text: str, stop: str) -> int:
    for size in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0


def _best(rows: torch.Tensor, top: int) -> list[tuple[tuple[int, float], ...]]:
    if top == 0:
        return [()] * rows.shape[0]
    values, tokens = rows.topk(top, -1)
    return [
        tuple(zip(ids, row, strict=True))
        for ids, row in zip(tokens.tolist(), values.tolist(), strict=True)
    ]


def refuse_prompt(engine: InferenceEngine, tokens: Sequence[int], new_tokens: int) -> None:
    """Refuse a prompt that does not fit the planned context, is empty or has unknown tokens."""
    limit = engine.settings.max_context
    if not tokens:
        raise ModelRefused("prompt_empty", expected="at least one token")
    if len(tokens) + new_tokens > limit:
        raise ModelRefused("context_length_exceeded", expected=f"at most {limit} tokens in all")
    if not all(engine.known_token(token) for token in tokens):
        raise ModelRefused("prompt_token_unknown", expected="tokens of the model")
