"""The chat template: equal to transformers, and bounded when hostile."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from enclave.core.errors import ModelRefused
from enclave.workload.model_host import template as rooms
from enclave.workload.model_host.model_files import ModelFiles
from enclave.workload.model_host.template import ChatTemplate, template_sha256, template_text
from tests.model.tiny import TEMPLATE, write_tokenizer

SMOLLM = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are helpful<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NAMESPACES = (
    "{{- bos_token }}{%- set ns = namespace(system='') -%}\n"
    "{% for m in messages %}\n    {% if m.role == 'system' %}{% set ns.system = m.content %}"
    "{% continue %}{% endif %}\n{{ m.role | upper }}: {{ m | tojson }} {{ m.content.strip() }}"
    "{{ eos_token }}\n{% endfor %}{{ ns.system }}"
    "{% if tools is not none %}no{% endif %}{% if x is defined %}no{% endif %}"
)
MESSAGES = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": " <b>one</b> & 'two' ünï "},
    {"role": "assistant", "content": "three\n"},
    {"role": "user", "content": "four"},
]


def chat_template(text: str, config: bytes = b"{}") -> ChatTemplate:
    files = ModelFiles({"chat_template.jinja": text.encode(), "tokenizer_config.json": config}, ())
    return ChatTemplate(files, hashlib.sha256(text.encode()).hexdigest())


@pytest.mark.parametrize("text", [TEMPLATE, SMOLLM, NAMESPACES])
@pytest.mark.parametrize("count", [1, 4])
def test_renders_as_transformers_does(text: str, count: int, tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(text)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    expected = tokenizer.apply_chat_template(
        MESSAGES[-count:], add_generation_prompt=True, tokenize=False
    )
    config = (tmp_path / "tokenizer_config.json").read_bytes()
    assert chat_template(text, config).render(MESSAGES[-count:]) == expected


HOSTILE = {
    "endless": (
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "template_timeout",
    ),
    "flood": ("{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}", "template_output"),
    "huge range": ("{% for i in range(10**12) %}{% endfor %}", "template_failed"),
    "internals": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "template_failed"),
    "format internals": ("{{ '{0.__class__}'.format(messages) }}", "template_failed"),
    "globals of a function": ("{{ raise_exception.__globals__ }}", "template_failed"),
    "namespace internals": ("{{ namespace(__class__=1) }}", "template_failed"),
    "changes messages": ("{{ messages.append(1) }}", "template_failed"),
    "includes a file": ("{% include '/etc/passwd' %}", "template_failed"),
    "endless recursion": (
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "template_failed",
    ),
    "no clock": ("{{ strftime_now('%Y') }}", "template_failed"),
    "refuses": ("{{ raise_exception('CANARY') }}", "template_failed"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_template(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, code = HOSTILE[name]
    monkeypatch.setattr(rooms, "MAX_RENDER_SECONDS", 0.3)
    started = time.monotonic()
    with pytest.raises(ModelRefused) as refused:
        chat_template(text).render(MESSAGES)
    assert refused.value.code == code
    assert "CANARY" not in str(refused.value)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("text", ["{% for %}", "{{ 1", "{% nothing %}"])
def test_malformed_template(text: str) -> None:
    with pytest.raises(ModelRefused, match="template_malformed"):
        chat_template(text)


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'x' * 10**10 }}",
        "{% set x = 'x' * 10**10 %}",
        "{{ '%09999999999d' | format(1) }}",
        "{% if 'x' | center(10**10) %}{% endif %}",
    ],
)
def test_nothing_is_computed_before_there_is_a_deadline(text: str) -> None:
    started = time.monotonic()
    chat_template(text)
    assert time.monotonic() - started < 2


def test_template_must_be_utf8() -> None:
    with pytest.raises(ModelRefused, match="template_malformed"):
        template_text(ModelFiles({"chat_template.jinja": b"\xff"}, ()))


def test_template_of_the_tokenizer_configuration() -> None:
    files = ModelFiles({"tokenizer_config.json": b'{"chat_template": "{{ 5 }}"}'}, ())
    assert ChatTemplate(files, template_sha256("{{ 5 }}")).render(MESSAGES) == "5"


def test_no_template_can_not_chat() -> None:
    absent = ChatTemplate(ModelFiles({}, ()), template_sha256(""))
    assert absent.absent
    with pytest.raises(ModelRefused, match="template_absent"):
        absent.render(MESSAGES)
