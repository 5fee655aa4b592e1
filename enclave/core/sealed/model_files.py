"""Which files a model artifact may hold: an allow-list, and pickle by its own name."""

from __future__ import annotations

from enclave.core.errors import ModelRefused

ALLOWED_SUFFIXES = frozenset(
    {".safetensors", ".json", ".txt", ".model", ".jinja", ".md", ".tiktoken"}
)
ALLOWED_NAMES = frozenset({"LICENSE", "NOTICE", "README"})
PICKLE_SUFFIXES = frozenset(
    {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill", ".npy", ".npz"}
)
"""Formats whose usual loader runs code out of the file."""


def refuse_unsafe_model_file(path: str, place: str) -> None:
    """Refuse a file that a model artifact may not hold.

    Raises ModelRefused `model_pickle`, `model_file_kind`; `place` names the file in it.
    """
    name = path.rsplit("/", 1)[-1]
    lowered = name.casefold()
    if any(f"{suffix}." in f"{lowered}." for suffix in PICKLE_SUFFIXES):
        raise ModelRefused(
            "model_pickle",
            expected="weights as .safetensors",
            got=place,
            hint="pickle files run code when they are loaded: convert them to safetensors",
        )
    stem, dot, suffix = name.rpartition(".")
    if name in ALLOWED_NAMES or (stem and dot + suffix in ALLOWED_SUFFIXES):
        return
    raise ModelRefused(
        "model_file_kind",
        expected=f"{', '.join(sorted(ALLOWED_SUFFIXES | ALLOWED_NAMES))}",
        got=place,
        hint="leave the file out of the model folder",
    )
