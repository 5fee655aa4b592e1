"""The OpenAI API of a running host, through the openai client and raw requests."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.model.host_process import served

PROMPT = "the quick brown fox"
CHAT: Any = [{"role": "user", "content": "what is the sum of twelve and seven"}]


@pytest.fixture(scope="module")
def client(tiny_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{tiny_url}/v1", api_key="x", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def plain(tiny_model: Path) -> tuple[Any, Any]:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    return model.train(False), AutoTokenizer.from_pretrained(tiny_model)


def post(url: str, path: str, body: Any, method: str = "POST") -> tuple[int, Any]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


def test_lists_one_model(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["model"]
    assert client.models.retrieve("model").id == "model"


def test_echo_logprobs_have_the_shape_of_lm_eval(
    client: openai.OpenAI, plain: tuple[Any, Any]
) -> None:
    model, tokenizer = plain
    choice = client.completions.create(
        model="model", prompt=PROMPT, echo=True, logprobs=1, max_tokens=1, temperature=0, seed=1234
    ).choices[0]
    ids = tokenizer(PROMPT).input_ids
    logprobs = choice.logprobs
    assert logprobs is not None
    assert logprobs.tokens[:-1] == [tokenizer.decode([token]) for token in ids]
    assert len(logprobs.tokens) == len(ids) + 1
    assert logprobs.token_logprobs[0] is None
    assert logprobs.top_logprobs[0] is None
    assert choice.text.startswith(PROMPT)
    for token, start in zip(logprobs.tokens[:-1], logprobs.text_offset, strict=False):
        assert PROMPT[start:].startswith(token)
    with torch.inference_mode():
        rows = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
    for position, token in enumerate(ids[1:]):
        assert logprobs.token_logprobs[position + 1] == rows[position, token].item()
        (best,) = logprobs.top_logprobs[position + 1].values()
        assert best == rows[position].max().item()
    assert logprobs.tokens[-1] == tokenizer.decode([int(rows[-1].argmax())])


def test_token_prompts_in_a_batch_score_like_text(
    client: openai.OpenAI, plain: tuple[Any, Any]
) -> None:
    ids = plain[1](PROMPT).input_ids
    batch = client.completions.create(
        model="model", prompt=[ids, ids[:3]], echo=True, logprobs=0, max_tokens=0
    )
    text = client.completions.create(
        model="model", prompt=PROMPT, echo=True, logprobs=0, max_tokens=0
    )
    first, second = (choice.logprobs for choice in batch.choices)
    assert first == text.choices[0].logprobs
    assert first is not None
    assert second is not None
    assert second.token_logprobs == first.token_logprobs[:3]
    assert batch.choices[1].index == 1
    assert batch.usage is not None
    assert batch.usage.prompt_tokens == len(ids) + 3
    assert batch.usage.completion_tokens == 0


def test_chat_equals_plain_generation(client: openai.OpenAI, plain: tuple[Any, Any]) -> None:
    model, tokenizer = plain
    prompt = tokenizer.apply_chat_template(
        CHAT, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.inference_mode():
        output = model.generate(**prompt, max_new_tokens=20, do_sample=False)
    expected = tokenizer.decode(output[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    answer = client.chat.completions.create(model="model", messages=CHAT, max_tokens=20)
    assert answer.choices[0].message.content == expected
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == prompt["input_ids"].shape[1]


def test_streams_say_what_the_answer_says(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="model", messages=CHAT, max_tokens=20)
    chunks = list(
        client.chat.completions.create(
            model="model",
            messages=CHAT,
            max_tokens=20,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].usage == whole.usage
    completion = client.completions.create(model="model", prompt=PROMPT, max_tokens=9)
    pieces = client.completions.create(model="model", prompt=PROMPT, max_tokens=9, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == completion.choices[0].text


def test_stop_strings_end_the_text_before_them(client: openai.OpenAI) -> None:
    free = client.completions.create(model="model", prompt=PROMPT, max_tokens=20).choices[0].text
    stop = free[3:5]
    cut = client.completions.create(model="model", prompt=PROMPT, max_tokens=20, stop=[stop, "~~"])
    assert cut.choices[0].text == free[: free.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    streamed = client.completions.create(
        model="model", prompt=PROMPT, max_tokens=20, stop=stop, stream=True
    )
    assert "".join(piece.choices[0].text for piece in streamed) == cut.choices[0].text


def test_chat_logprobs(client: openai.OpenAI) -> None:
    choice = client.chat.completions.create(
        model="model", messages=CHAT, max_tokens=4, logprobs=True, top_logprobs=3
    ).choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    for token in choice.logprobs.content:
        assert len(token.top_logprobs) == 3
        assert token.logprob == token.top_logprobs[0].logprob


def test_the_same_request_has_the_same_bytes(tiny_url: str) -> None:
    body = {"model": "model", "prompt": PROMPT, "max_tokens": 8, "logprobs": 3}
    answers = [post(tiny_url, "/v1/completions", body)[1] for _ in range(2)]
    for answer in answers:
        del answer["id"]
    assert answers[0] == answers[1]


COMPLETION = {"model": "model", "prompt": PROMPT, "max_tokens": 1}
MESSAGES = {"model": "model", "messages": CHAT, "max_tokens": 1}
REFUSED: dict[str, tuple[str, Any, int, str]] = {
    "not JSON": ("completions", b"{", 400, "request_not_json"),
    "array": ("completions", [], 400, "request_not_json"),
    "nested bomb": ("completions", b"[" * 200_000, 400, "request_not_json"),
    "key twice": ("completions", b'{"model":"model","model":"model"}', 400, "request_not_json"),
    "NaN": ("completions", b'{"model":NaN}', 400, "request_not_json"),
    "too large": ("completions", b" " * ((1 << 20) + 1), 413, "request_too_large"),
    "another model": ("completions", {**COMPLETION, "model": "x"}, 404, "model_not_found"),
    "no model": ("completions", {"prompt": "x"}, 404, "model_not_found"),
    "no prompt": ("completions", {"model": "model"}, 400, "parameter_type"),
    "empty prompt": ("completions", {**COMPLETION, "prompt": ""}, 400, "prompt_empty"),
    "unknown token": (
        "completions",
        {**COMPLETION, "prompt": [384]},
        400,
        "prompt_token_unknown",
    ),
    "negative token": ("completions", {**COMPLETION, "prompt": [-1]}, 400, "prompt_token_unknown"),
    "mixed prompt": ("completions", {**COMPLETION, "prompt": ["a", None]}, 400, "parameter_type"),
    "too many prompts": (
        "completions",
        {**COMPLETION, "prompt": ["a"] * 65},
        400,
        "parameter_type",
    ),
    "over the token limit": (
        "completions",
        {**COMPLETION, "max_tokens": 33},
        400,
        "parameter_value",
    ),
    "over the context": (
        "completions",
        {**COMPLETION, "prompt": "z" * 256},
        400,
        "context_length_exceeded",
    ),
    "temperature": ("completions", {**COMPLETION, "temperature": 0.7}, 400, "sampling_not_planned"),
    "top_p": ("chat/completions", {**MESSAGES, "top_p": 0.9}, 400, "sampling_not_planned"),
    "several choices": ("chat/completions", {**MESSAGES, "n": 2}, 400, "parameter_unsupported"),
    "penalty": ("completions", {**COMPLETION, "presence_penalty": 1}, 400, "parameter_unsupported"),
    "tools": ("chat/completions", {**MESSAGES, "tools": [{}]}, 400, "parameter_unsupported"),
    "unknown parameter": ("completions", {**COMPLETION, "CANARY": 1}, 400, "parameter_unsupported"),
    "logprobs too many": ("completions", {**COMPLETION, "logprobs": 21}, 400, "parameter_value"),
    "logprobs a flag": ("completions", {**COMPLETION, "logprobs": True}, 400, "parameter_type"),
    "stop empty": ("completions", {**COMPLETION, "stop": ""}, 400, "parameter_value"),
    "seed negative": ("completions", {**COMPLETION, "seed": -1}, 400, "parameter_value"),
    "stream with echo": (
        "completions",
        {**COMPLETION, "stream": True, "echo": True},
        400,
        "parameter_unsupported",
    ),
    "no messages": ("chat/completions", {**MESSAGES, "messages": []}, 400, "parameter_type"),
    "unknown role": (
        "chat/completions",
        {**MESSAGES, "messages": [{"role": "tool", "content": "x"}]},
        400,
        "parameter_value",
    ),
    "image": (
        "chat/completions",
        {**MESSAGES, "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        400,
        "parameter_unsupported",
    ),
    "chat over the context": (
        "chat/completions",
        {**MESSAGES, "messages": [{"role": "user", "content": "z" * 300}], "stream": True},
        400,
        "context_length_exceeded",
    ),
    "half a character": (
        "completions",
        b'{"model":"model","prompt":"\\ud800","max_tokens":1}',
        500,
        "engine_failed",
    ),
    "unknown route": ("embeddings", {}, 404, "not_found"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_request_has_its_code(name: str, tiny_url: str) -> None:
    path, body, status, code = REFUSED[name]
    assert post(tiny_url, f"/v1/{path}", body)[0] == status
    error = post(tiny_url, f"/v1/{path}", body)[1]["error"]
    assert error["code"] == code
    assert "CANARY" not in json.dumps(error)


def test_wrong_method(tiny_url: str) -> None:
    assert post(tiny_url, "/v1/completions", b"", "PUT")[0] == 405


def test_neutral_parameters_of_frameworks_pass(client: openai.OpenAI) -> None:
    client.chat.completions.create(
        model="model",
        messages=[{"role": "user", "content": [{"type": "text", "text": "one"}]}],
        max_completion_tokens=1,
        n=1,
        temperature=0,
        top_p=1,
        presence_penalty=0,
        frequency_penalty=0,
        user="someone",
        response_format={"type": "text"},
    )


def test_sampling_follows_the_seed(tiny_model: Path) -> None:
    with (
        served(tiny_model, temperature="1.5", top_p="0.95") as (_, url),
        openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client,
    ):
        texts = [
            client.completions.create(model="model", prompt=PROMPT, max_tokens=16, seed=seed)
            .choices[0]
            .text
            for seed in (1, 1, 2)
        ]
    assert texts[0] == texts[1] != texts[2]


def test_an_abandoned_stream_does_not_block_the_next_request(tiny_url: str) -> None:
    parts = urlsplit(tiny_url)
    body = json.dumps({**MESSAGES, "max_tokens": 32, "stream": True}).encode()
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as raw:
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        raw.sendall(head.encode() + body)
        raw.recv(1)
    assert post(tiny_url, "/v1/completions", COMPLETION)[0] == 200
