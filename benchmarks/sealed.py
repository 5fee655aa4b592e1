"""Sealing, opening and uploading an artifact against memcpy, age and a raw TLS socket.

    python benchmarks/sealed.py [--quick] [--json]

Every round runs each measurement once, in an order that rotates; a ratio is the median
of the rounds' ratios, so that a slow moment of the machine meets both sides.  Ratios are
speeds: above 1 means faster than the yardstick.

    open_vs_memcpy_1t, _2t   opened into a fresh memfd, digests included, against memcpy
                             into a fresh memfd with the same number of threads
    open_huge_vs_memcpy      the same on a tmpfs of huge pages, all cores (needs root)
    open_vs_age              the fastest opening, from files, against age (pyrage), which has
                             one thread, decrypting from memory to memory
    open_vs_age_file         the same against age decrypting a file to a file on that tmpfs
    seal_vs_age              sealing against age encrypting, both to files in memory
    upload_vs_tls            benchmarks/upload.py
    seal_rss_mb, upload_rss_mb   peak resident memory of each process with a 2 GB artifact
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyrage
from _table import median_ratio, print_json, print_table
from safetensors.numpy import load_file

from enclave.clients.party.sealing import SealedArtifact, seal_artifact
from enclave.core.sealed import ArtifactLimits
from enclave.workload.memory.memfd import MemfdMemory
from enclave.workload.memory.protected import ProtectedMemory
from enclave.workload.memory.tmpfs import TmpfsMemory
from enclave.workload.opening import open_artifact
from enclave.workload.segment_source import SealedDirectory

MIB = 1024 * 1024
_CLONE_NEWNS = 0x20000
_MADV_POPULATE_WRITE = 23
_libc = ctypes.CDLL(None, use_errno=True)
_libc.memmove.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

# VmHWM and not ru_maxrss: that one remembers the process that was forked from.
_SEAL_CHILD = """
import re, sys
from pathlib import Path
from enclave.clients.party.sealing import seal_artifact
seal_artifact(Path(sys.argv[1]), Path(sys.argv[2]), "model")
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024)
"""

Measurement = Callable[[], float]
"""Runs once; returns the seconds of what is measured, preparation and clean-up apart."""


class Bench:
    """One artifact of `size` bytes, sealed and encrypted by age, and everything to time on it."""

    def __init__(self, place: Path, size: int, huge: Path | None) -> None:
        self.size = size
        self.huge = huge
        self._place = place
        self._source = write_model(place / "source", size)
        self.sealed: SealedArtifact = seal_artifact(self._source, place / "sealed", "model")
        self._file = self._source / "model.safetensors"
        self._identity = pyrage.x25519.Identity.generate()
        pyrage.encrypt_file(str(self._file), str(place / "model.age"), [self._identity.to_public()])
        self._age = (place / "model.age").read_bytes()
        self._content = mmap.mmap(-1, size)
        with self._file.open("rb") as file:
            file.readinto(self._content)

    def open_into(self, make: Callable[[], ProtectedMemory], threads: int) -> float:
        memory = make()
        with SealedDirectory(self._place / "sealed") as source:
            started = time.perf_counter()
            open_artifact(
                source,
                self.sealed.key,
                self.sealed.salt,
                self.sealed.commitment,
                memory,
                ArtifactLimits(),
                threads,
            )
            seconds = time.perf_counter() - started
        memory.wipe()
        return seconds

    def copy_into(self, descriptor: int, threads: int) -> float:
        """Memcpy into a fresh mapping of `descriptor`, a MiB at a time; closes it."""
        started = time.perf_counter()
        os.ftruncate(descriptor, self.size)
        with mmap.mmap(descriptor, self.size) as target:
            to, of = (ctypes.c_char.from_buffer(one) for one in (target, self._content))
            to_address, of_address = ctypes.addressof(to), ctypes.addressof(of)
            starts = iter(range(0, self.size, MIB))
            claiming = threading.Lock()

            def work() -> None:
                while True:
                    with claiming:
                        start = next(starts, None)
                    if start is None:
                        return
                    count = min(MIB, self.size - start)
                    _libc.memmove(to_address + start, of_address + start, count)

            workers = [threading.Thread(target=work) for _ in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            seconds = time.perf_counter() - started
            del to, of
        os.close(descriptor)
        return seconds

    def age_decrypt(self) -> float:
        started = time.perf_counter()
        pyrage.decrypt(self._age, [self._identity])
        return time.perf_counter() - started

    def age_decrypt_file(self) -> float:
        target = self._memory_folder() / "age"
        started = time.perf_counter()
        pyrage.decrypt_file(str(self._place / "model.age"), str(target), [self._identity])
        seconds = time.perf_counter() - started
        target.unlink()
        return seconds

    def age_encrypt(self) -> float:
        target = self._memory_folder() / "age"
        started = time.perf_counter()
        pyrage.encrypt_file(str(self._file), str(target), [self._identity.to_public()])
        seconds = time.perf_counter() - started
        target.unlink()
        return seconds

    def seal(self, folder: Path) -> float:
        target = folder / "bench-sealed"
        started = time.perf_counter()
        seal_artifact(self._source, target, "model")
        seconds = time.perf_counter() - started
        subprocess.run(["rm", "-r", target], check=True)
        return seconds

    def load_plain(self) -> float:
        started = time.perf_counter()
        load_file(self._file)
        return time.perf_counter() - started

    def _memory_folder(self) -> Path:
        return self.huge or Path("/dev/shm")

    def measurements(self) -> dict[str, Measurement]:
        cores = os.cpu_count() or 1
        huge, memory = self.huge, self._memory_folder()
        found: dict[str, Measurement] = {}
        for threads in sorted({1, 2, cores}):

            def memfd_copy(threads: int = threads) -> float:
                return self.copy_into(os.memfd_create("copy"), threads)

            def memfd_open(threads: int = threads) -> float:
                return self.open_into(MemfdMemory, threads)

            found[f"memcpy memfd {threads}t"] = memfd_copy
            found[f"open memfd {threads}t"] = memfd_open
        for threads in sorted({1, 2, cores}) if huge is not None else ():

            def huge_copy(threads: int = threads, path: Path = memory / "copy") -> float:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                path.unlink()
                return self.copy_into(descriptor, threads)

            def huge_open(threads: int = threads, path: Path = memory) -> float:
                return self.open_into(lambda: TmpfsMemory(path), threads)

            found[f"memcpy huge {threads}t"] = huge_copy
            found[f"open huge {threads}t"] = huge_open
        found["age decrypt 1t"] = self.age_decrypt
        found["age decrypt file 1t"] = self.age_decrypt_file
        found["age encrypt file 1t"] = self.age_encrypt
        found["seal to memory"] = lambda: self.seal(memory)
        found["seal to disk, durable"] = lambda: self.seal(self._place)
        found["safetensors load"] = self.load_plain
        return found


def write_model(folder: Path, size: int) -> Path:
    """A folder with one safetensors file of `size` bytes, random weights."""
    folder.mkdir()
    header = b""
    for _ in range(2):  # the header's length is part of what it describes
        weights = size - 8 - len(header)
        described = {"w": {"dtype": "U8", "shape": [weights], "data_offsets": [0, weights]}}
        header = json.dumps(described).encode().ljust(120)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        left = weights
        while left:
            left -= file.write(os.urandom(min(MIB, left)))
        os.fsync(file.fileno())
    return folder


def mount_huge(place: Path, size: int) -> Path | None:
    """A private tmpfs of huge pages, gone with this process; None without root."""
    if os.geteuid() != 0 or _libc.unshare(_CLONE_NEWNS) != 0:
        return None
    point = place / "huge"
    point.mkdir()
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    options = f"huge=always,noswap,mode=0700,size={2 * size + 64 * MIB}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", point], check=True)
    return point


def touch_memory(size: int) -> None:
    """Touch as much free memory as a measurement takes, and give it back.

    A virtual machine's free memory may have gone back to its host; the first touch then
    costs far more than anything measured here, and would meet whoever comes first.
    """
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory.madvise(_MADV_POPULATE_WRITE)


def measure_rounds(bench: Bench, rounds: int) -> dict[str, list[float]]:
    """GB/s of every measurement and round; a first round warms up and does not count."""
    measurements = list(bench.measurements().items())
    speeds: dict[str, list[float]] = {name: [] for name, _ in measurements}
    for number in range(rounds + 1):
        # Rotated by pairs: a memcpy stays next to the opening it is compared with.
        turn = 2 * number % len(measurements)
        for name, run in measurements[turn:] + measurements[:turn]:
            touch_memory(2 * bench.size)
            speed = bench.size / run() / 1e9
            if number:
                speeds[name].append(speed)
    return speeds


def compare(speeds: dict[str, list[float]]) -> dict[str, object]:
    """The ratios that this benchmark promises."""
    cores = os.cpu_count() or 1
    figures: dict[str, object] = {}
    for threads in (1, 2):
        figures[f"open_vs_memcpy_{threads}t"] = median_ratio(
            speeds[f"open memfd {threads}t"], speeds[f"memcpy memfd {threads}t"]
        )
    opened = {name: statistics.median(of) for name, of in speeds.items() if name[:5] == "open "}
    best = max(opened, key=lambda name: opened[name])
    if f"open huge {cores}t" in speeds:
        for key, threads in (("open_huge_vs_memcpy", cores), ("open_huge_vs_memcpy_1t", 1)):
            figures[key] = median_ratio(
                speeds[f"open huge {threads}t"], speeds[f"memcpy huge {threads}t"]
            )
    figures["open_vs_age"] = median_ratio(speeds[best], speeds["age decrypt 1t"])
    figures["open_vs_age_file"] = median_ratio(speeds[best], speeds["age decrypt file 1t"])
    figures["seal_vs_age"] = median_ratio(speeds["seal to memory"], speeds["age encrypt file 1t"])
    figures["open_gb_s"] = opened[best]
    return figures


def measure_sealing_memory(place: Path, size: int) -> float:
    """Peak resident MB of a process that seals an artifact of `size` bytes to disk."""
    source = place / "large"
    source.mkdir()
    with (source / "model.safetensors").open("wb") as file:
        file.truncate(size)  # sparse: reading it costs the sealer the same
    done = subprocess.run(
        [sys.executable, "-c", _SEAL_CHILD, source, place / "large-sealed"],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    subprocess.run(["rm", "-r", source, place / "large-sealed"], check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--size-mb", type=int, help="artifact to seal and open")
    parser.add_argument("--large-mb", type=int, help="artifact to measure memory and upload with")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--no-upload", action="store_true", help="leave the upload out")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    size = (options.size_mb or (64 if options.quick else 512)) * MIB
    large_mb = options.large_mb or (192 if options.quick else 2048)
    rounds = options.rounds or (3 if options.quick else 7)
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        place = Path(folder)
        huge = mount_huge(place, size)
        try:
            speeds = measure_rounds(Bench(place, size, huge), rounds)
        finally:
            if huge is not None:
                subprocess.run(["umount", "--lazy", huge], check=True)
        figures = compare(speeds)
        figures["seal_rss_mb"] = measure_sealing_memory(place, large_mb * MIB)
    rows = [[name, statistics.median(of), min(of), max(of)] for name, of in speeds.items()]
    print_table(f"{size // MIB} MiB, {rounds} rounds", ["GB/s", "median", "min", "max"], rows)
    if not options.no_upload:
        from upload import measure_upload  # it prepares gRPC's environment when imported

        figures |= measure_upload(options.directory, large_mb)
    print_table("Figures", ["key", "value"], list(figures.items()))
    if huge is None:
        print("open_huge_vs_memcpy needs root: a tmpfs with huge pages could not be mounted")
    if options.json:
        print_json(figures)


if __name__ == "__main__":
    main()
