"""The files of a model, received as read-only descriptors and judged before use.

Configuration, tokenizer, template and safetensors weights are read, by closed
lists of names.  Pickles and code are refused by name and by content.  Refusals name
the rule, never a file's text.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from enclave.core.errors import DocumentRefused, ModelRefused
from enclave.core.fields import Fields
from enclave.core.sealed.model_files import refuse_unsafe_model_file

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
_READ = {
    CONFIG: 1 << 20,
    GENERATION_CONFIG: 1 << 20,
    TOKENIZER: 64 << 20,
    TOKENIZER_CONFIG: 4 << 20,
    TEMPLATE: 256 << 10,
}
"""Files that are read whole, with the most bytes each may have."""
_SHARD = re.compile(r"model-[0-9]{5}-of-[0-9]{5}\.safetensors\Z")
_CODE_SUFFIXES = frozenset({".py", ".pyc", ".pyd", ".pyx", ".sh", ".so", ".whl"})
_PICKLE_STARTS = (b"\x80", b"PK\x03\x04")
_MAX_FILE_BYTES = 2**48


@dataclass(frozen=True)
class WeightFile:
    """One safetensors file; the descriptor belongs to the host."""

    path: str
    size: int
    descriptor: int


@dataclass(frozen=True)
class ModelFiles:
    """Judged files: `texts` holds the small ones by name, `weights` the rest in order."""

    texts: Mapping[str, bytes]
    weights: tuple[WeightFile, ...]

    def json_object(self, name: str) -> dict[str, Any]:
        """A small file as a JSON object; an absent one is empty."""
        data = self.texts.get(name, b"{}")
        try:
            value = json.loads(data.decode("utf-8", "strict"), object_pairs_hook=_distinct)
        except (ValueError, RecursionError):
            raise ModelRefused("model_file_malformed", expected=f"{name}: JSON object") from None
        if not isinstance(value, dict):
            raise ModelRefused("model_file_malformed", expected=f"{name}: JSON object")
        return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ModelRefused("model_file_malformed", expected="each JSON key once")
    return fields


def accept_model_files(listed: Sequence[Any], descriptors: Sequence[int]) -> ModelFiles:
    """Judge the files of a load request; descriptor N belongs to entry N.

    Raises ModelRefused: `model_files_listed`, `model_file_unknown`, `model_pickle`,
    `model_remote_code`, `model_file_size`, `model_file_kind`,
    `model_descriptor_writable`, `model_file_missing`, `model_shards`,
    `model_file_malformed`.
    """
    if len(listed) != len(descriptors):
        raise ModelRefused("model_files_listed", expected="one descriptor a file")
    texts: dict[str, bytes] = {}
    weights: list[WeightFile] = []
    names: set[str] = set()
    for entry, descriptor in zip(listed, descriptors, strict=True):
        name, size = _read_entry(entry)
        if name in names:
            raise ModelRefused("model_files_listed", expected="each file once")
        names.add(name)
        refuse_file_name(name)
        _refuse_descriptor(descriptor, size)
        if name in _READ:
            if size > _READ[name]:
                raise ModelRefused("model_file_size", expected=f"{name}: at most {_READ[name]}")
            texts[name] = _read_all(descriptor, size)
        elif _is_weights(name):
            weights.append(_accept_weights(name, size, descriptor))
    for name in (CONFIG, TOKENIZER):
        if name not in texts:
            raise ModelRefused("model_file_missing", expected=name)
    weights.sort(key=lambda weight: weight.path)
    _refuse_shards([weight.path for weight in weights])
    files = ModelFiles(texts, tuple(weights))
    for name in (CONFIG, GENERATION_CONFIG, TOKENIZER_CONFIG):
        refuse_remote_code(files.json_object(name))
    return files


def refuse_file_name(name: str) -> None:
    """Refuse what sealing refuses, code, and weights by a name that nothing loads.

    Other files that sealing allows may lie beside a model; they are never opened.
    """
    path = PurePosixPath(name)
    if path.suffix.lower() in _CODE_SUFFIXES:
        raise ModelRefused("model_remote_code", expected="no code beside a model")
    refuse_unsafe_model_file(name, "")
    if any(part.startswith((".", "/")) for part in path.parts) or (
        path.suffix == ".safetensors" and not _is_weights(name)
    ):
        raise ModelRefused("model_file_unknown", expected="model.safetensors, or its shards")


def _is_weights(name: str) -> bool:
    return name == "model.safetensors" or _SHARD.match(name) is not None


def refuse_remote_code(value: Any, depth: int = 0) -> None:
    """Refuse configuration that names code to fetch or import, at any depth."""
    if depth > 32:
        raise ModelRefused("model_file_malformed", expected="depth at most 32")
    if isinstance(value, dict):
        if value.keys() & {"auto_map", "custom_pipelines", "trust_remote_code"}:
            raise ModelRefused("model_remote_code", expected="no auto_map, no custom code")
        for child in value.values():
            refuse_remote_code(child, depth + 1)
    elif isinstance(value, list):
        for child in value:
            refuse_remote_code(child, depth + 1)


def _read_entry(entry: Any) -> tuple[str, int]:
    try:
        fields = Fields(entry, "file")
        name = fields.text("path", max_length=128)
        size = fields.integer("size", 0, _MAX_FILE_BYTES)
        fields.done()
    except DocumentRefused as refusal:
        raise ModelRefused("model_files_listed", expected=refusal.expected) from None
    return name, size


def _refuse_descriptor(descriptor: int, size: int) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise ModelRefused("model_file_kind", expected="a regular file")
    if status.st_size != size:
        raise ModelRefused("model_file_size", expected=f"{size} bytes", got=f"{status.st_size}")
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
        raise ModelRefused("model_descriptor_writable", expected="read-only descriptors")


def _read_all(descriptor: int, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = os.pread(descriptor, size - len(parts), len(parts))
        if not part:
            raise ModelRefused("model_file_size", expected=f"{size} bytes", got=f"{len(parts)}")
        parts += part
    return bytes(parts)


def _accept_weights(name: str, size: int, descriptor: int) -> WeightFile:
    # A safetensors file begins with a u64 below 2**24; these two can't be one of a sane size.
    if os.pread(descriptor, 4, 0).startswith(_PICKLE_STARTS) and _looks_pickled(descriptor):
        raise ModelRefused("model_pickle", expected="safetensors weights")
    return WeightFile(name, size, descriptor)


def _looks_pickled(descriptor: int) -> bool:
    # 0x80 may also be the low byte of a header's length: then "{" follows at byte 8.
    return os.pread(descriptor, 1, 8) != b"{"


def _refuse_shards(names: Sequence[str]) -> None:
    if list(names) == ["model.safetensors"]:
        return
    count = len(names)
    if not count:
        raise ModelRefused("model_file_missing", expected="model.safetensors")
    if list(names) != [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]:
        raise ModelRefused("model_shards", expected="one file, or every shard once")
