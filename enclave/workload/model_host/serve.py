"""The model host's life: load, serve, stop, over one control socket.

Requests, in this order (frames of enclave/workload/frames.py):

    {"op":"load","files":[{"path","size"}],"engine":{…}}  + one descriptor a file
    {"op":"serve"}                                        + the listening socket
    {"op":"stop"}

A further `serve` takes the place of the one before, whose connections end:
one sandbox at a time.

Answers: `loaded` with the engine's facts, `serving`, `stopped` with counts, or
`refused`.  The end of the control socket ends the process.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import stat
import threading
from typing import TYPE_CHECKING, Any

from enclave.core.errors import DocumentRefused, ModelRefused, Refusal, RunRefused
from enclave.core.fields import Fields
from enclave.core.plan_terms import Engine, read_engine
from enclave.workload.frames import MAX_FRAME_DESCRIPTORS, receive_frame, send_frame
from enclave.workload.model_host.model_files import accept_model_files

if TYPE_CHECKING:
    from enclave.workload.model_host.service import ModelService

_ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    # Threads that wait for each other by spinning stall for seconds on a shared core.
    "OMP_WAIT_POLICY": "passive",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_OFFLINE": "1",
}
_GRACE_SECONDS = 5


def preload() -> None:
    """Import everything that serving needs, before privileges and the network are gone.

    Fixes what must be fixed before torch works: one inter-op thread, offline libraries.
    """
    os.environ.update(_ENVIRONMENT)
    logging.disable(logging.CRITICAL)
    import torch

    if torch.get_num_interop_threads() != 1:
        torch.set_num_interop_threads(1)
    for name in ("app", "facts", "inference", "loading", "service"):
        importlib.import_module(f"enclave.workload.model_host.{name}")
    importlib.import_module("uvicorn.protocols.http.httptools_impl")
    importlib.import_module("uvicorn.loops.asyncio")
    for name in ("lifespan.off", "logging", "server"):
        importlib.import_module(f"uvicorn.{name}")
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]


def run(control: socket.socket) -> int:
    """Serve one control socket to its end; the exit status of the process (0 or 1)."""
    preload()
    host = _Host()
    try:
        while not host.stopped:
            message, descriptors = receive_frame(control, max_descriptors=MAX_FRAME_DESCRIPTORS)
            send_frame(control, _answer(host, message, descriptors))
    except RunRefused:
        # The broker is gone or speaks nonsense: nothing to serve any more.
        return 1
    finally:
        host.close()
    return 0


def _answer(host: _Host, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
    try:
        return host.obey(message, descriptors)
    except Refusal as refusal:
        return {"op": "refused", "refusal": refusal.as_json()}
    except Exception:  # noqa: BLE001 - its text could carry the model; the code says enough
        return {"op": "refused", "refusal": ModelRefused("engine_failed").as_json()}


class _Host:
    """The order of operations."""

    def __init__(self) -> None:
        self.stopped = False
        self._service: ModelService | None = None
        self._server: _Server | None = None

    def obey(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """One request, one answer; unused descriptors are closed."""
        op = message.get("op")
        if op == "load" and self._service is None:
            return self._load(message, descriptors)
        if op == "serve" and self._service is not None:
            return self._serve(message, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        if op == "stop":
            return self._stop()
        raise RunRefused("model_host_order", expected="load, serve, stop")

    def close(self) -> None:
        """End serving."""
        if self._service is not None:
            self._service.stopping.set()
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._service is not None:
            self._service.close()

    def _load(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        try:
            fields = Fields(message, "load")
            fields.constant("op", "load")
            listed = fields.array("files", 1, MAX_FRAME_DESCRIPTORS)
            engine = read_engine(fields.object("engine"))
            fields.done()
            self._service = _build_service(listed, descriptors, engine)
        except DocumentRefused as refusal:
            raise ModelRefused("model_load_malformed", expected=refusal.expected) from None
        finally:
            # Small files were read, weights are mapped: none is needed any more.
            for descriptor in descriptors:
                os.close(descriptor)
        from enclave.workload.model_host.facts import describe_engine

        return {"op": "loaded", "engine": describe_engine(engine)}

    def _serve(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        if set(message) != {"op"} or len(descriptors) != 1 or self._service is None:
            for descriptor in descriptors:
                os.close(descriptor)
            raise RunRefused("model_host_listener", expected="one listening socket")
        listener = _accept_listener(descriptors[0])
        if self._server is not None:
            self._server.stop()
        self._server = _Server(self._service, listener)
        return {"op": "serving"}

    def _stop(self) -> dict[str, Any]:
        self.close()
        self.stopped = True
        counts = self._service.counts if self._service is not None else None
        return {
            "op": "stopped",
            "requests": counts.requests if counts else 0,
            "prompt_tokens": counts.prompt_tokens if counts else 0,
            "completion_tokens": counts.completion_tokens if counts else 0,
        }


def _build_service(listed: Any, descriptors: list[int], engine: Engine) -> ModelService:
    import torch

    from enclave.workload.model_host.inference import InferenceEngine
    from enclave.workload.model_host.loading import load_model
    from enclave.workload.model_host.service import ModelService

    torch.set_num_threads(engine.threads)
    torch.use_deterministic_algorithms(True)
    # The kernels are chosen by the line above; filling fresh memory would only cost time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    files = accept_model_files(listed, descriptors)
    return ModelService(InferenceEngine(load_model(files, engine), engine))


def _accept_listener(descriptor: int) -> socket.socket:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RunRefused("model_host_listener", expected="one listening socket")
    listener = socket.socket(fileno=descriptor)
    if (
        listener.type != socket.SOCK_STREAM
        or listener.family not in (socket.AF_INET, socket.AF_UNIX)
        or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    ):
        listener.close()
        raise RunRefused("model_host_listener", expected="one listening socket")
    return listener


class _Server:
    """uvicorn on an inherited socket, in its own thread, silent."""

    def __init__(self, service: ModelService, listener: socket.socket) -> None:
        import uvicorn

        from enclave.workload.model_host.app import build_app

        config = uvicorn.Config(
            build_app(service),
            loop="asyncio",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            limit_concurrency=256,
            timeout_keep_alive=3600,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._listener = listener
        self._thread = threading.Thread(
            target=self._server.run, args=([listener],), name="http", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Close the listener and end open connections."""
        self._server.should_exit = True
        self._thread.join(2 * _GRACE_SECONDS)
        self._listener.close()
