"""Questions of a log-in travel to whoever is there, and the first answer counts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jupyter_slurm.agent.client import AgentClient
from jupyter_slurm.errors import PromptGone, UsageError


def test_a_prompt_waits_for_its_answer(client: AgentClient, wait_for: Callable[..., Any]) -> None:
    with ThreadPoolExecutor() as pool:
        connecting = pool.submit(client.post, "/v1/clusters/local/connect")
        prompt = wait_for(lambda: client.get("/v1/prompts"), "the prompt")[0]
        assert prompt["questions"] == [{"text": "Password: ", "echo": False}]
        with pytest.raises(UsageError, match="1 questions, and 2 answers"):
            client.post(f"/v1/prompts/{prompt['id']}", json={"answers": ["a", "b"]})
        assert client.post(f"/v1/prompts/{prompt['id']}", json={"answers": ["hush"]}) is not None
        assert connecting.result(10)["id"] == "local"
    assert client.get("/v1/prompts") == []
    with pytest.raises(PromptGone):
        client.post(f"/v1/prompts/{prompt['id']}", json={"answers": ["late"]})


def test_everybody_hears_of_a_prompt_and_nobody_of_its_answer(
    client: AgentClient,
    core: Any,
    stream: Callable[..., Any],
    wait_for: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    heard: list[Any] = []

    def listen() -> None:
        for event, data in stream(client, "/v1/events"):
            heard.append((event, data))
            if data.get("settled"):
                return

    listener = threading.Thread(target=listen)
    listener.start()
    wait_for(lambda: core.bus.listeners, "the listener")
    with ThreadPoolExecutor() as pool:
        connecting = pool.submit(client.post, "/v1/clusters/local/connect")
        prompt = wait_for(lambda: client.get("/v1/prompts"), "the prompt")[0]
        client.post(f"/v1/prompts/{prompt['id']}", json={"answers": ["correct horse"]})
        connecting.result(10)
    listener.join(10)
    assert [event for event, _ in heard] == ["prompt", "prompt"]
    assert heard[-1][1]["questions"] == []
    assert "correct horse" not in caplog.text + repr(heard) + repr(core.desk.__dict__)


def test_nobody_is_waited_for_without_end(client: AgentClient, core: Any, wait_for: Callable[..., Any]) -> None:
    core.desk._patience = 0.05
    assert client.post("/v1/clusters/local/connect")["id"] == "local"
    assert client.get("/v1/prompts") == []
