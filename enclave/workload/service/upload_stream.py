"""The upload stream: one thread writes what arrives, the other makes it durable and acknowledges.

So the network does not wait for the disk, nor the disk for the network.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator

import grpc

from enclave.core.errors import Refusal
from enclave.wire.codec_upload import parse_segment
from enclave.wire.messages import ACKNOWLEDGE_BYTES, UploadAcknowledged, UploadStatus
from enclave.workload.service.journal import RESERVED_RECORDS
from enclave.workload.service.upload_intake import Segment, UploadIntake
from enclave.workload.service.upload_store import UploadStore

_Item = list[Segment] | Exception | None
_BATCHES_AHEAD = 2
_POLL_SECONDS = 0.2


def receive_upload(
    store: UploadStore, index: bytes, messages: Iterator[bytes]
) -> Iterator[UploadStatus | UploadAcknowledged]:
    """Answer one upload stream: first the status, then what became durable.

    However the stream ends, segments that were written whole are made durable.
    """
    with store.receive(index) as intake:
        yield store.status()
        receiver = _Receiver(intake, messages)
        receiver.start()
        try:
            while (item := receiver.items.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                runs = intake.make_durable(item)
                yield UploadAcknowledged(runs, intake.missing_segments())
        finally:
            receiver.is_stopped.set()
            intake.close()
            with contextlib.suppress(Refusal):
                intake.make_durable(intake.take_in_flight())


class _Receiver(threading.Thread):
    """Writes segments and hands over full batches; ends with None or the refusal."""

    def __init__(self, intake: UploadIntake, messages: Iterator[bytes]) -> None:
        super().__init__(name="upload", daemon=True)
        self._intake = intake
        self._messages = messages
        self.items: queue.Queue[_Item] = queue.Queue(_BATCHES_AHEAD)
        self.is_stopped = threading.Event()

    def run(self) -> None:
        ending: Exception | None = None
        try:
            self._receive()
        except grpc.RpcError:
            pass  # the caller went away or was cut off
        except Exception as error:  # noqa: BLE001 -- raised again by the answering thread
            ending = error
        self._put(ending)

    def _receive(self) -> None:
        batch: list[Segment] = []
        size = 0
        try:
            for message in self._messages:
                stream, segment, ciphertext = parse_segment(message)
                self._intake.write(stream, segment, ciphertext)
                batch.append((stream, segment))
                size += len(ciphertext)
                del ciphertext, message
                if size >= ACKNOWLEDGE_BYTES or len(batch) >= RESERVED_RECORDS:
                    self._put(batch)
                    batch, size = [], 0
        finally:
            if batch:
                self._put(batch)

    def _put(self, item: _Item) -> None:
        while not self.is_stopped.is_set():
            try:
                self.items.put(item, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return
