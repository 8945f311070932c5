"""Questions of a login reach every present client, and the first answer counts."""

from __future__ import annotations

import getpass
import io
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.client.login.call import answering
from jupyter_slurm.client.login.prompt_display import ask_prompt
from jupyter_slurm.errors import PromptGone, SlurmError, UsageError


def test_a_prompt_waits_for_its_answer(client: AgentClient, wait_for: Callable[..., Any]) -> None:
    with ThreadPoolExecutor() as pool:
        connecting = pool.submit(client.post, "/v1/clusters/local/connect")
        prompt = wait_for(lambda: client.get("/v1/prompts"), "the prompt")[0]
        assert prompt["questions"] == [{"text": "Password: ", "echo": False}]
        with pytest.raises(UsageError, match="1 questions, but 2 answers"):
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
    listener.join(120)
    assert [event for event, _ in heard] == ["prompt", "prompt"]
    assert heard[-1][1]["questions"] == []
    assert "correct horse" not in caplog.text + repr(heard) + repr(core.desk.__dict__)


def test_nobody_is_waited_for_without_end(client: AgentClient, core: Any, wait_for: Callable[..., Any]) -> None:
    core.desk._timeout = 0.05
    assert client.post("/v1/clusters/local/connect")["id"] == "local"
    assert client.get("/v1/prompts") == []


@pytest.fixture
def door(client: AgentClient) -> Callable[[], Any]:
    """Provide a front end that uses the cluster, and asks its user meanwhile."""
    return lambda: answering(client, "local", lambda: client.post("/v1/clusters/local/connect"))


def test_who_cannot_be_asked_declines_for_nobody(
    client: AgentClient, door: Callable[[], Any], wait_for: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(text: str) -> str:
        raise EOFError

    monkeypatch.setattr("getpass.getpass", nobody)
    with ThreadPoolExecutor() as pool:
        elsewhere = pool.submit(client.post, "/v1/clusters/local/connect")
        prompt = wait_for(lambda: client.get("/v1/prompts"), "the prompt")[0]
        with pytest.raises(SlurmError, match="cannot show a prompt"):
            door()
        assert prompt in client.get("/v1/prompts")
        for each in client.get("/v1/prompts"):
            client.post(f"/v1/prompts/{each['id']}", json={"answers": ["hush"]})
        assert elsewhere.result(10)["id"] == "local"


def test_no_secret_is_read_where_it_would_be_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("getpass.getpass", getpass.fallback_getpass)  # its behaviour without a terminal
    monkeypatch.setattr("sys.stdin", io.StringIO("hush\n"))
    question = {"text": "Password", "echo": False}
    with pytest.raises(SlurmError, match="cannot show a prompt"):
        ask_prompt(
            {
                "cluster": "far",
                "host": "far",
                "kind": "password",
                "title": "",
                "instruction": "",
                "questions": [question],
            }
        )
    assert capsys.readouterr().err == ""


def test_who_interrupts_declines(client: AgentClient, door: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(text: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("getpass.getpass", interrupted)
    with pytest.raises(KeyboardInterrupt):
        door()
    assert client.get("/v1/prompts") == []


def test_an_answer_from_elsewhere_ends_the_waiting_here(
    client: AgentClient,
    door: Callable[[], Any],
    wait_for: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reading = threading.Event()

    def waits(text: str) -> str:
        reading.set()
        time.sleep(60)
        raise AssertionError("nobody said that it is settled")

    def elsewhere() -> None:
        assert reading.wait(120)
        (prompt,) = client.get("/v1/prompts")
        client.post(f"/v1/prompts/{prompt['id']}", json={"answers": ["hush"]})

    monkeypatch.setattr("getpass.getpass", waits)
    with ThreadPoolExecutor() as pool:
        other = pool.submit(elsewhere)
        assert door()["id"] == "local"
        other.result()
    assert "answered elsewhere" in capsys.readouterr().out


def test_an_empty_line_is_asked_about_again_unless_the_key_was_accepted_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """JupyterLab removes the field of a cell by an empty line when the key was accepted in its dialog."""
    lines: list[str] = []
    monkeypatch.setattr("builtins.input", lambda text: lines.pop(0))
    question = {"text": "Continue (yes/no/[fingerprint])?", "echo": True}
    prompt: Any = {"host": "gateway", "kind": "host-key", "title": "", "instruction": "", "cluster": "far"}
    prompt["questions"] = [question]
    lines[:] = ["", " ", "yes"]
    assert ask_prompt(prompt, lambda: True) == ["yes"]
    lines[:] = [""]
    assert ask_prompt(prompt, lambda: False) == [""]


@pytest.mark.parametrize("kind", ["keyboard-interactive", "password", "passphrase", "host-key"])
def test_what_a_host_says_does_not_look_like_ours(
    kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def typed(text: str) -> str:
        shown.append(text)
        return "hush"

    monkeypatch.setattr("getpass.getpass", typed)
    imitation = "Wait\nFor gateway, jupyter-slurm asks you:\x1b[2J"
    prompt = {"host": "gateway", "kind": kind, "title": "Hm", "instruction": imitation, "cluster": "local"}
    assert ask_prompt({**prompt, "questions": [{"text": "Passphrase for /home/me/.ssh/id", "echo": False}]}) == ["hush"]
    head, *rest = [*capsys.readouterr().out.splitlines(), *shown]
    assert head == ("gateway asks:" if kind in ("keyboard-interactive", "password") else imitation.splitlines()[1][:-4])
    assert len(rest) == 4
    assert all(line.startswith("  ") and "\x1b" not in line for line in rest)
