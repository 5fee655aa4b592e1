"""The host's control socket: order, refusals, silence, its end."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from enclave.core.errors import RunRefused
from enclave.workload.frames import receive_frame
from tests.model.host_process import HostProcess, engine_settings, served


@pytest.fixture
def host() -> Iterator[HostProcess]:
    made = HostProcess()
    yield made
    made.close()


def test_serves_counts_and_stops(tiny_model: Path) -> None:
    canary = "CANARY-3b1f"
    host = HostProcess()
    facts = host.load(tiny_model, engine_settings(tiny_model))["engine"]
    assert facts["threads"] == "1"
    assert facts["dtype"] == "float32"
    assert facts["deterministic_algorithms"] == "true"
    assert all(isinstance(value, str) for value in facts.values())
    url = host.serve()
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        client.completions.create(model="model", prompt=canary, max_tokens=2)
        with pytest.raises(openai.BadRequestError):
            client.completions.create(model="model", prompt=canary * 100, max_tokens=2)
    stopped = host.ask({"op": "stop"})
    assert stopped["op"] == "stopped"
    assert stopped["requests"] == 1
    assert stopped["completion_tokens"] == 2
    assert host.process.wait(30) == 0
    assert host.close() == (b"", b"")


def test_order_is_enforced(host: HostProcess, tiny_model: Path) -> None:
    assert host.ask({"op": "serve"})["refusal"]["code"] == "model_host_order"
    assert host.ask({"op": "unknown"})["refusal"]["code"] == "model_host_order"
    assert host.load(tiny_model, engine_settings(tiny_model))["op"] == "loaded"
    again = host.load(tiny_model, engine_settings(tiny_model))
    assert again["refusal"]["code"] == "model_host_order"
    assert host.ask({"op": "serve"})["refusal"]["code"] == "model_host_listener"


def test_only_a_listening_socket_is_served(host: HostProcess, tiny_model: Path) -> None:
    host.load(tiny_model, engine_settings(tiny_model))
    with socket.socket() as idle, open(tiny_model / "config.json", "rb") as file:
        for descriptor in (idle.fileno(), file.fileno()):
            answer = host.ask({"op": "serve"}, [descriptor])
            assert answer["refusal"]["code"] == "model_host_listener"
    host.serve()


def test_a_refused_model_is_reported_and_another_may_follow(
    host: HostProcess, tiny_model: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "model"
    shutil.copytree(tiny_model, broken)
    (broken / "modeling.py").write_text("import os")
    refusal = host.load(broken, engine_settings(broken))["refusal"]
    assert (refusal["stage"], refusal["code"]) == ("model", "model_remote_code")
    wrong = engine_settings(tiny_model, template_sha256="0" * 64)
    assert host.load(tiny_model, wrong)["refusal"]["code"] == "template_mismatch"
    malformed = engine_settings(tiny_model, threads=0)
    assert host.load(tiny_model, malformed)["refusal"]["code"] == "model_load_malformed"
    assert host.load(tiny_model, engine_settings(tiny_model))["op"] == "loaded"


def test_ends_when_the_broker_ends(tiny_model: Path) -> None:
    with served(tiny_model) as (host, _):
        host.control.shutdown(socket.SHUT_WR)
        assert host.process.wait(30) == 1
        with pytest.raises(RunRefused):
            receive_frame(host.control)


def test_a_new_listener_takes_the_place_of_the_old(tiny_model: Path) -> None:
    body = {"model": "model", "prompt": "one", "max_tokens": 1}
    with served(tiny_model) as (host, first):
        with openai.OpenAI(base_url=f"{first}/v1", api_key="x", max_retries=0) as client:
            client.completions.create(**body)
            former, host.listener = host.listener, None
            second = host.serve()
            if former is not None:
                former.close()
            with pytest.raises(openai.APIConnectionError):
                client.completions.create(**body)
        with openai.OpenAI(base_url=f"{second}/v1", api_key="x", max_retries=0) as client:
            client.completions.create(**body)
        assert host.ask({"op": "stop"})["requests"] == 2
