"""The HTTP face: three OpenAI routes, bounded bodies, typed errors, no logs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from enclave.core.errors import ModelRefused
from enclave.workload.model_host import responses
from enclave.workload.model_host.requests import (
    MAX_REQUEST_BYTES,
    MODEL_ID,
    parse_body,
    parse_chat,
    parse_completion,
)
from enclave.workload.model_host.service import ModelService

Endpoint = Callable[[Request], Awaitable[Response]]


def build_app(service: ModelService) -> Starlette:
    """The ASGI application over one service."""

    async def list_models(_request: Request) -> Response:
        return JSONResponse(responses.models_body())

    async def show_model(request: Request) -> Response:
        if request.path_params["model"] != MODEL_ID:
            raise ModelRefused("model_not_found", expected=MODEL_ID)
        return JSONResponse(responses.models_body()["data"][0])

    async def complete(request: Request) -> Response:
        asked = parse_completion(await _read_body(request), service.settings)
        if asked.stream:
            return await _stream(service.stream(asked))
        return JSONResponse(await service.complete(asked))

    async def chat(request: Request) -> Response:
        asked = parse_chat(await _read_body(request), service.settings)
        if asked.stream:
            return await _stream(service.stream(asked))
        return JSONResponse(await service.chat(asked))

    return Starlette(
        routes=[
            Route("/v1/models", _guard(list_models), methods=["GET"]),
            Route("/v1/models/{model}", _guard(show_model), methods=["GET"]),
            Route("/v1/completions", _guard(complete), methods=["POST"]),
            Route("/v1/chat/completions", _guard(chat), methods=["POST"]),
        ],
        exception_handlers={HTTPException: _answer_http_error},
    )


def _guard(endpoint: Endpoint) -> Endpoint:
    """Turn every exception into a typed body: a traceback would carry prompts."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ModelRefused as refusal:
            return _answer(refusal)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:  # noqa: BLE001 - whatever happened, its text stays inside
            return _answer(ModelRefused("engine_failed"))

    return guarded


def _answer(refusal: ModelRefused) -> JSONResponse:
    return JSONResponse(responses.error_body(refusal), responses.error_status(refusal))


def _answer_http_error(_request: Request, error: Exception) -> Response:
    known = error.status_code if isinstance(error, HTTPException) else 500
    code = {404: "not_found", 405: "method_not_allowed"}.get(known, "request_malformed")
    return _answer(ModelRefused(code))


async def _read_body(request: Request) -> dict[str, Any]:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_REQUEST_BYTES:
            raise ModelRefused("request_too_large", expected=f"at most {MAX_REQUEST_BYTES} bytes")
    return parse_body(bytes(body))


async def _stream(chunks: AsyncIterator[dict[str, Any]]) -> Response:
    # The first chunk decides between an error status and a stream.
    first = await anext(chunks)

    async def events() -> AsyncIterator[bytes]:
        yield _event(first)
        try:
            async for chunk in chunks:
                yield _event(chunk)
        except Exception:  # noqa: BLE001 - the stream ends with a typed error instead
            yield _event(responses.error_body(ModelRefused("engine_failed")))
        yield b"data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode("utf-8") + b"\n\n"
