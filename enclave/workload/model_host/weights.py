"""Weights as tensors over the received descriptors, without a copy.

Each file is mapped privately: the pages are the tmpfs pages themselves, and a
stray write would touch a private copy, not the artifact.  The header that was
judged is the only one that is read; no second parser sees the file.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping

import torch

from enclave.core.errors import ModelRefused
from enclave.workload.model_host.model_files import ModelFiles, WeightFile
from enclave.workload.model_host.safetensors_header import Header, TensorEntry, read_header

_TORCH_TYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def map_weights(files: ModelFiles) -> dict[str, torch.Tensor]:
    """Every tensor by name. Raises ModelRefused with a `safetensors_…` code."""
    tensors: dict[str, torch.Tensor] = {}
    for weight in files.weights:
        header = read_weight_header(weight)
        mapping = mmap.mmap(
            weight.descriptor,
            weight.size,
            flags=mmap.MAP_PRIVATE,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )
        for entry in header.tensors:
            if entry.name in tensors:
                raise ModelRefused("safetensors_duplicate", expected="each name in one file")
            tensors[entry.name] = _view(mapping, entry)
    return tensors


def read_weight_header(weight: WeightFile) -> Header:
    """The judged header of one received file."""
    return read_header(lambda size, offset: os.pread(weight.descriptor, size, offset), weight.size)


def _view(mapping: mmap.mmap, entry: TensorEntry) -> torch.Tensor:
    dtype = _TORCH_TYPES[entry.dtype]
    if entry.begin == entry.end:
        return torch.empty(entry.shape, dtype=dtype)
    count = (entry.end - entry.begin) // dtype.itemsize
    return torch.frombuffer(mapping, dtype=dtype, count=count, offset=entry.begin).view(entry.shape)
