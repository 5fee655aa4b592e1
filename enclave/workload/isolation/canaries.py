"""What probes aim at: listeners, files and a process that stand open to anybody outside."""

# Descriptors, mounts and exact paths: the os functions say what happens.
# ruff: noqa: PTH101, PTH112, PTH120
from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
from contextlib import ExitStack
from types import TracebackType
from typing import Final

from enclave.workload.isolation.limits import Limits
from enclave.workload.isolation.probes.probe import Targets

VARIABLE: Final = "DOUBLEBLIND_CANARY"
_SHARED: Final = "/dev/shm"  # noqa: S108 - its being shared is the point


class Canaries:
    """Context manager: plants the canaries of one self-test and removes them.

    `targets` is valid inside the context.  `touched` counts connections and
    datagrams that arrived: the effect of an attempt, whatever the probe says.
    """

    def __init__(self, limits: Limits, *, runtime: str = "", scratch: str = "/tmp") -> None:  # noqa: S108
        self._limits = limits
        self._runtime = runtime
        self._scratch = scratch
        self._stack = ExitStack()
        self._listeners: list[socket.socket] = []
        self.targets: Targets

    def __enter__(self) -> Canaries:
        value = secrets.token_hex(16)
        directory = tempfile.mkdtemp(prefix="doubleblind-canary-")
        self._stack.callback(shutil.rmtree, directory, ignore_errors=True)
        os.chmod(directory, 0o755)  # noqa: S103 - a canary must be reachable
        unix = os.path.join(directory, "socket")
        tcp4 = self._listen(socket.AF_INET, ("127.0.0.1", 0))
        tcp6 = self._listen_ipv6()
        udp = self._listen(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM)
        self._listen(socket.AF_UNIX, "\0doubleblind-" + value)
        self._listen(socket.AF_UNIX, unix)
        os.chmod(unix, 0o777)  # noqa: S103 - a canary must be reachable but for the sandbox
        file = self._file(os.path.join(directory, "file"), value)
        shared = os.path.join(_SHARED, f"doubleblind-{value}")
        self.targets = Targets(
            tcp4=tcp4,
            tcp6=tcp6,
            udp=udp,
            abstract="doubleblind-" + value,
            unix=unix,
            file=file,
            shm=self._file(shared, value) if os.path.isdir(_SHARED) else shared,
            pid=self._process(),
            value=os.environ.get(VARIABLE, value),
            runtime=self._runtime or os.path.dirname(os.__file__),
            scratch=self._scratch,
            tmp_bytes=self._limits.tmp_bytes,
            file_bytes=self._limits.file_bytes,
            memory_bytes=self._limits.memory_bytes,
            processes=self._limits.processes,
            open_files=self._limits.open_files,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def touched(self) -> int:
        """How many connections and datagrams reached the listeners since the last call."""
        count = 0
        for listener in self._listeners:
            try:
                while True:
                    if listener.type == socket.SOCK_DGRAM:
                        listener.recv(64)
                    else:
                        listener.accept()[0].close()
                    count += 1
            except OSError:
                continue
        return count

    def _listen(self, family: int, address: object, kind: int = socket.SOCK_STREAM) -> int:
        listener = self._stack.enter_context(socket.socket(family, kind))
        listener.bind(address)  # type: ignore[arg-type]
        if kind == socket.SOCK_STREAM:
            listener.listen(16)
        listener.setblocking(False)
        self._listeners.append(listener)
        name = listener.getsockname()
        return name[1] if isinstance(name, tuple) else 0

    def _listen_ipv6(self) -> int:
        try:
            return self._listen(socket.AF_INET6, ("::1", 0))
        except OSError:
            return 0  # no IPv6 on this machine: the probe can not succeed outside either

    def _file(self, path: str, content: str) -> str:
        with open(path, "w", encoding="ascii") as file:
            file.write(content)
        os.chmod(path, 0o644)
        self._stack.callback(_remove, path)
        return path

    def _process(self) -> int:
        """A sleeping process of another session."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                os.close(write)
                os.read(read, 1)
            finally:
                os._exit(0)
        os.close(read)
        self._stack.callback(os.waitpid, pid, 0)
        self._stack.callback(os.close, write)
        return pid


def _remove(path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)
