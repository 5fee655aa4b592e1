"""Files for /bundle and /suite: descriptors from the broker, copied by trusted stage two.

The trees are fresh tmpfs mounts of limited size; Landlock makes them
read-only afterwards.  Paths are validated on both sides.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from enclave.core.errors import RunRefused, SealedRefused
from enclave.core.fields import Fields
from enclave.core.sealed.paths import parse_input_path
from enclave.workload.frames import receive_frame, send_frame

TREES: Final = ("bundle", "suite")
_BATCH: Final = 64
_CHUNK: Final = 1024 * 1024
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file: its tree (`bundle` or `suite`), relative path, size and a readable descriptor."""

    tree: str
    path: str
    size: int
    descriptor: int


def split_safe_path(path: str) -> tuple[str, ...]:
    """The components of a safe relative path; refused otherwise (`input_path`).

    Printable ASCII components that do not start with a dot, at most 16 of
    them, no empty one: nothing that names a parent, a root or a hidden file.
    """
    try:
        return parse_input_path(path, "file")
    except SealedRefused:
        raise RunRefused("input_path", expected="a safe relative path") from None


def send_inputs(control: socket.socket, files: Sequence[InputFile]) -> None:
    """The broker's side: send every file; the caller keeps its descriptors."""
    for file in files:
        split_safe_path(file.path)
    batches = [files[i : i + _BATCH] for i in range(0, len(files), _BATCH)] or [()]
    for number, batch in enumerate(batches, 1):
        message = {
            "event": "inputs",
            "files": [{"tree": f.tree, "path": f.path, "size": f.size} for f in batch],
            "last": number == len(batches),
        }
        send_frame(control, message, [f.descriptor for f in batch])


def receive_inputs(control: socket.socket, root: str = "/") -> int:
    """Stage two's side: write all files beneath `root`; returns their number."""
    count = 0
    last = False
    while not last:
        message, descriptors = receive_frame(control, max_descriptors=_BATCH)
        try:
            fields = Fields(message, "inputs")
            fields.constant("event", "inputs")
            last = fields.flag("last")
            files = list(_parse_files(fields.array("files", 0, _BATCH), descriptors))
            fields.done()
            for file in files:
                _write_file(os.path.join(root, file.tree), file)
            count += len(files)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
    return count


def _parse_files(entries: Sequence[Any], descriptors: Sequence[int]) -> Iterator[InputFile]:
    if len(entries) != len(descriptors):
        raise RunRefused("input_descriptors", expected="one descriptor a file")
    for entry, descriptor in zip(entries, descriptors, strict=True):
        fields = Fields(entry, "inputs.files")
        yield InputFile(
            tree=fields.constant("tree", *TREES),
            path=fields.text("path", max_length=1024),
            size=fields.integer("size", 0, 2**40),
            descriptor=descriptor,
        )
        fields.done()


def _write_file(tree: str, file: InputFile) -> None:
    *folders, name = split_safe_path(file.path)
    with ExitStack() as stack:

        def keep(descriptor: int) -> int:
            stack.callback(os.close, descriptor)
            return descriptor

        try:
            directory = keep(os.open(tree, _DIRECTORY))
            for folder in folders:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o755, dir_fd=directory)
                directory = keep(os.open(folder, _DIRECTORY, dir_fd=directory))
            target = keep(os.open(name, _NEW_FILE, 0o444, dir_fd=directory))
        except FileExistsError:
            raise RunRefused("input_duplicate", expected="each path once") from None
        except OSError:
            # a path that runs through a file, or a file system without room for a name
            raise RunRefused("input_path", expected="directories on the way") from None
        _copy(file, target)


def _copy(file: InputFile, target: int) -> None:
    offset = 0
    try:
        while offset < file.size:
            chunk = os.pread(file.descriptor, min(_CHUNK, file.size - offset), offset)
            if not chunk:
                raise RunRefused("input_size", expected=f"{file.size} bytes", got=f"{offset}")
            written = 0
            while written < len(chunk):
                written += os.write(target, chunk[written:])
            offset += len(chunk)
    except OSError:
        raise RunRefused("input_too_large", expected="files within the size limit") from None
