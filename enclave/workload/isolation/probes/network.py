"""Attempts to speak to anybody but the model."""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

from enclave.workload.isolation.probes.probe import Outcome, Probe, Targets
from enclave.workload.isolation.probes.raw import raw_call

_FASTOPEN: Final = 0x20000000
_MPTCP: Final = 262
_LOOPBACK: Final = "127.0.0.1"


def _connect(family: int, kind: int, address: object, protocol: int = 0) -> Outcome:
    with socket.socket(family, kind, protocol) as peer:
        peer.settimeout(2)
        peer.connect(address)  # type: ignore[arg-type]
    return "open"


def _create(family: int, kind: int, protocol: int = 0) -> Outcome:
    os.close(raw_call("socket", family, kind, protocol))
    return "open"


def _tcp4(targets: Targets) -> Outcome:
    return _connect(socket.AF_INET, socket.SOCK_STREAM, (_LOOPBACK, targets.tcp4))


def _tcp6(targets: Targets) -> Outcome:
    return _connect(socket.AF_INET6, socket.SOCK_STREAM, ("::1", targets.tcp6))


def _udp(targets: Targets) -> Outcome:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.sendto(b"probe", (_LOOPBACK, targets.udp))
    return "open"


def _abstract(targets: Targets) -> Outcome:
    return _connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + targets.abstract)


def _pathname(targets: Targets) -> Outcome:
    return _connect(socket.AF_UNIX, socket.SOCK_STREAM, targets.unix)


def _fast_open(targets: Targets) -> Outcome:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
        peer.sendto(b"probe", _FASTOPEN, (_LOOPBACK, targets.tcp4))
    return "open"


def _fast_open_message(targets: Targets) -> Outcome:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
        peer.sendmsg([b"probe"], [], _FASTOPEN, (_LOOPBACK, targets.tcp4))
    return "open"


def _multipath(targets: Targets) -> Outcome:
    return _connect(socket.AF_INET, socket.SOCK_STREAM, (_LOOPBACK, targets.tcp4), _MPTCP)


def _bind(_: Targets) -> Outcome:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
        peer.bind((_LOOPBACK, 0))
    return "open"


def _listen_unbound(_: Targets) -> Outcome:
    # listen(2) picks a port by itself: Landlock's bind rule does not see it
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
        peer.listen(1)
    return "open"


def _device_option(_: Targets) -> Outcome:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, struct.pack("i", 1))
    return "open"


PROBES: Final = (
    Probe("tcp4", "TCP over IPv4 to a listener outside", _tcp4),
    Probe("tcp6", "TCP over IPv6 to a listener outside", _tcp6),
    Probe("udp", "UDP to a listener outside", _udp),
    Probe("fast_open", "TCP fast open past Landlock (sendto)", _fast_open),
    Probe("fast_open_message", "TCP fast open past Landlock (sendmsg)", _fast_open_message),
    Probe("multipath", "multipath TCP past Landlock", _multipath),
    Probe("tcp_bind", "bind a TCP port", _bind),
    Probe("tcp_listen", "listen without bind", _listen_unbound),
    Probe("socket_mark", "mark packets", _device_option),
    Probe("icmp_raw", "raw ICMP socket", lambda _: _create(2, 3, 1)),
    Probe("sctp", "SCTP socket", lambda _: _create(2, 5, 132)),
    Probe("netlink_route", "netlink routing socket", lambda _: _create(16, 3, 0)),
    Probe("netlink_audit", "netlink audit socket", lambda _: _create(16, 3, 9)),
    Probe("netlink_uevent", "netlink kernel events", lambda _: _create(16, 3, 15)),
    Probe("unix_abstract", "abstract UNIX socket outside", _abstract),
    Probe("unix_path", "UNIX socket at a path outside", _pathname),
    Probe("packet", "packet socket", lambda _: _create(17, 3, 0x0300), "killed", "socket"),
    Probe("vsock", "vsock to the host", lambda _: _create(40, 1), "killed", "socket"),
    Probe("kernel_crypto", "kernel crypto socket", lambda _: _create(38, 5), "killed", "socket"),
    Probe("xdp", "XDP socket", lambda _: _create(44, 3), "killed", "socket"),
)
