"""The chat template: pinned by digest, rendered in a sandbox with limits.

The environment is the one transformers renders templates with, less the
clock (`strftime_now` is undefined) and plus a deadline and an output cap.
Memory is bounded by the compartment.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from enclave.core.canonical import digest_bytes
from enclave.core.errors import ModelRefused
from enclave.workload.model_host.model_files import TEMPLATE, TOKENIZER_CONFIG, ModelFiles

MAX_OUTPUT_CHARACTERS = 1 << 20
MAX_RENDER_SECONDS = 2.0
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")


class _DeadlineError(Exception):
    """Raised inside a template that runs too long."""


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, but an unsafe attribute ends the rendering instead of printing nothing."""

    def unsafe_undefined(self, obj: Any, attribute: str) -> jinja2.Undefined:  # noqa: ARG002
        raise jinja2.exceptions.SecurityError("unsafe attribute")


class _Namespace(jinja2.utils.Namespace):
    """`namespace()` without underscore attributes: no way towards Python's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            _Namespace._refuse(name)
        jinja2.utils.Namespace.__init__(args[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _Namespace._refuse(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _refuse(name: object) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError("underscore attribute")


def template_text(files: ModelFiles) -> str:
    """The model's chat template; empty if it has none.

    Raises ModelRefused: `template_ambiguous`, `template_malformed`.
    """
    configured = files.json_object(TOKENIZER_CONFIG).get("chat_template")
    if configured is not None and not isinstance(configured, str):
        raise ModelRefused("template_ambiguous", expected="one template, as text")
    if TEMPLATE not in files.texts:
        return configured or ""
    try:
        text = files.texts[TEMPLATE].decode("utf-8", "strict")
    except UnicodeDecodeError:
        raise ModelRefused("template_malformed", expected="UTF-8") from None
    if configured is not None and configured != text:
        raise ModelRefused("template_ambiguous", expected=f"one template, in {TEMPLATE}")
    return text


def template_sha256(text: str) -> str:
    """The digest that a plan pins as `engine.template_sha256`."""
    return digest_bytes(text.encode("utf-8"))


class ChatTemplate:
    """A template whose digest is the planned one."""

    def __init__(self, files: ModelFiles, expected_sha256: str) -> None:
        text = template_text(files)
        if template_sha256(text) != expected_sha256:
            # Not what was found: a digest lets the other party confirm a guess.
            raise ModelRefused("template_mismatch", expected=expected_sha256)
        self._template = _compile(text) if text else None
        self._tokens = _special_tokens(files.json_object(TOKENIZER_CONFIG))

    @property
    def absent(self) -> bool:
        """Whether the model has no template: it can complete but not chat."""
        return self._template is None

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt for `messages`, ending where the assistant begins.

        Raises ModelRefused: `template_absent`, `template_timeout`, `template_output`,
        `template_failed` (the template refused these messages, or is wrong).
        """
        if self._template is None:
            raise ModelRefused("template_absent", expected="a model with a chat template")
        context = {
            **self._tokens,
            "messages": [dict(message) for message in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": True,
        }
        deadline = time.monotonic() + MAX_RENDER_SECONDS
        parts: list[str] = []
        size = 0
        previous = sys.gettrace()
        sys.settrace(_deadline_trace(deadline))
        try:
            for part in self._template.generate(context):
                size += len(part)
                if size > MAX_OUTPUT_CHARACTERS:
                    raise ModelRefused(
                        "template_output", expected=f"at most {MAX_OUTPUT_CHARACTERS} characters"
                    )
                parts.append(part)
        except ModelRefused:
            raise
        except _DeadlineError:
            raise ModelRefused(
                "template_timeout", expected=f"at most {MAX_RENDER_SECONDS} s"
            ) from None
        except Exception:  # noqa: BLE001 - a template may raise anything, and its text is secret
            raise ModelRefused("template_failed") from None
        finally:
            sys.settrace(previous)
        return "".join(parts)


def _deadline_trace(deadline: float) -> Callable[[FrameType, str, Any], Any]:
    def trace(_frame: FrameType, _event: str, _argument: Any) -> Any:
        if time.monotonic() > deadline:
            raise _DeadlineError
        return trace

    return trace


def _compile(text: str) -> jinja2.Template:
    # Nothing is computed while compiling, which has no deadline: no optimiser, and an
    # output function that needs the context, so that constants wait for the rendering.
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[jinja2.ext.loopcontrols],
        optimized=False,
        finalize=_print_later,
    )
    environment.filters["tojson"] = _tojson
    environment.globals.clear()
    environment.globals.update(
        {
            "range": jinja2.sandbox.safe_range,
            "dict": _new_dict,
            "namespace": _Namespace,
            "raise_exception": _raise_exception,
        }
    )
    try:
        return environment.from_string(text)
    except (jinja2.TemplateError, RecursionError, SyntaxError, ValueError):
        raise ModelRefused("template_malformed", expected="a Jinja template") from None


@jinja2.pass_context
def _print_later(_context: jinja2.runtime.Context, value: Any) -> Any:
    return value


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _raise_exception(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    tokens: dict[str, str] = {}
    for name in _SPECIAL_TOKENS:
        value = config.get(name)
        if isinstance(value, dict):  # an AddedToken as JSON
            value = value.get("content")
        if isinstance(value, str):
            tokens[name] = value
    return tokens
