"""A party's state directory: 0700, files 0600, atomic writes, one command at a time.

Nothing in it is read or written when its permissions are wider than its
owner's.  The layout:

    party.json  signing_key.pem  tls_key.pem  tls_certificate.pem  recipient_key
    public/               what the other side gets: party.json and artifact cards
    sealed/<artifact>/    ciphertext and its public index
    secrets/<artifact>.json   key, salt, commitment
    plans/<digest>/       approval.json, receipts and opened releases of a plan
    ledger.sqlite         every grant, recorded before it is sent
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from enclave.clients.party.errors import StateRefused

MAX_STATE_FILE_BYTES = 64 * 1024 * 1024


class StateDirectory:
    """An existing state directory whose permissions were found safe.

    Raises StateRefused: `state_missing`, `state_permissions`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            found = os.lstat(root)
        except FileNotFoundError:
            raise StateRefused(
                "state_missing",
                expected="a state directory",
                got=str(root),
                hint="make one with `doubleblind keygen --state DIR`",
            ) from None
        if not stat.S_ISDIR(found.st_mode):
            raise StateRefused("state_missing", expected="a directory, not a link or a file")
        refuse_open_permissions(found, root)

    @classmethod
    def create(cls, root: Path) -> StateDirectory:
        """Make the directory (0700) where it is not there, and open it."""
        root.parent.mkdir(parents=True, exist_ok=True)
        try:
            root.mkdir(mode=0o700)
            sync_directory(root.parent)
        except FileExistsError:
            pass
        return cls(root)

    def path(self, name: str) -> Path:
        """The path of a file inside; its folders are made 0700."""
        target = self.root / name
        self._make_folders(target.parent)
        return target

    def folder(self, name: str) -> Path:
        """A folder inside, made 0700 where it is not there."""
        target = self.root / name
        self._make_folders(target)
        return target

    def _make_folders(self, folder: Path) -> None:
        current = self.root
        for part in folder.relative_to(self.root).parts:
            if part == "..":
                raise StateRefused("state_path", expected="a path inside the state directory")
            current = current / part
            try:
                current.mkdir(mode=0o700)
                sync_directory(current.parent)
            except FileExistsError:
                refuse_open_permissions(os.lstat(current), current)

    def has(self, name: str) -> bool:
        """Whether a file of that name is there."""
        return os.path.lexists(self.root / name)

    def write(self, name: str, data: bytes) -> Path:
        """Write a file whole or not at all; it is durable on return."""
        target = self.path(name)
        write_atomically(target, data, mode=0o600)
        return target

    def read(self, name: str) -> bytes:
        """Read a file that only its owner can read.

        Raises StateRefused: `state_file_missing`, `state_permissions`, `state_file_too_large`.
        """
        target = self.root / name
        try:
            descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise StateRefused("state_file_missing", expected=name) from None
        except OSError:
            raise StateRefused("state_permissions", expected=f"{name}: a plain file") from None
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(file.fileno())
            refuse_open_permissions(found, target)
            if found.st_size > MAX_STATE_FILE_BYTES:
                raise StateRefused("state_file_too_large", expected=name)
            return file.read()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory for one command that changes it.

        Raises StateRefused `state_in_use` when another command holds it.
        """
        descriptor = os.open(
            self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateRefused(
                    "state_in_use",
                    expected="one command at a time in this state directory",
                    got=str(self.root),
                    hint="wait for the other doubleblind command to end",
                ) from None
            yield
        finally:
            os.close(descriptor)  # the lock goes with the descriptor, also after kill -9


def write_atomically(target: Path, data: bytes, *, mode: int) -> None:
    """Replace `target` with `data` by rename; durable on return."""
    # Random and exclusive: nobody who shares the folder can lay a file in its way.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(target.parent)


def sync_directory(folder: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def restrict_tree(folder: Path) -> None:
    """Take every permission but the owner's from a folder and what lies in it."""
    folder.chmod(0o700)
    for parent, folders, files in os.walk(folder):
        for name in folders:
            (Path(parent) / name).chmod(0o700)
        for name in files:
            (Path(parent) / name).chmod(0o600)


def refuse_open_permissions(found: os.stat_result, path: Path) -> None:
    """Refuse a link, a foreign owner, or a mode that lets anybody else in."""
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode) or mode & 0o077:
        wanted = "700" if stat.S_ISDIR(found.st_mode) else "600"
        raise StateRefused(
            "state_permissions",
            expected=f"{path}: readable by its owner only",
            got="a symbolic link" if stat.S_ISLNK(found.st_mode) else f"mode {mode:04o}",
            hint=f"chmod {wanted} {path}",
        )
    if found.st_uid != os.geteuid():
        raise StateRefused(
            "state_permissions",
            expected=f"{path}: owned by the user who runs this command",
            got=f"owner {found.st_uid}",
        )
