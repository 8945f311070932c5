"""Prompts of a login, put to the user at a notebook or a terminal."""

from __future__ import annotations

import contextlib
import getpass
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import AgentError, LoginDeclined, PromptGone, SlurmError

if TYPE_CHECKING:
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.domain import api_types as api

__all__ = ["answer_prompt", "ask_prompt"]

_T = TypeVar("_T")
_WAIT_STEP_S = 0.3
_SIGNAL_TIMEOUT_S = 5.0  # seconds within which a signal surely arrives
_INDENT = "  "


def answer_prompt(client: AgentClient, prompt: api.Prompt, *, declines: bool) -> None:
    """Ask the user and send the answer; an interrupt declines.

    The wait ends when another front end answers, for example JupyterLab's dialog. If this process cannot ask the user,
    the prompt stays open for another front end.
    """
    path = f"/v1/prompts/{prompt['id']}"
    try:
        with contextlib.closing(_WakeSignal(client, prompt["id"])) as bell:
            answers = _unless_rung(bell, lambda: ask_prompt(prompt, partial(_is_open, client, prompt["id"])))
    except SlurmError as error:
        if not declines and not isinstance(error, LoginDeclined):
            raise
        with contextlib.suppress(AgentError):
            client.post(path, json={"answers": None})
        if not declines:
            raise
        sys.stderr.write(f"{printable(error.message)}\n")
        return
    except KeyboardInterrupt:
        with contextlib.suppress(AgentError):
            client.post(path, json={"answers": None})
        raise
    if answers is None:
        sys.stdout.write(f"\n{_INDENT}This prompt was answered elsewhere, or the login ended.\n")
        return
    with contextlib.suppress(PromptGone):
        client.post(path, json={"answers": answers})


def _is_open(client: AgentClient, prompt: str) -> bool:
    """Return whether a prompt still waits for an answer."""
    try:
        return any(waiting["id"] == prompt for waiting in client.get("/v1/prompts"))
    except SlurmError:  # the agent has ended, and the login with it
        return False


class _WakeSignal:
    """Signal that returns the main thread from the read of a line when the prompt has been answered elsewhere.

    Only a signal ends such a read: the one of a user's interrupt.

    Attributes
    ----------
    has_rung : bool
        An interrupt that no user caused is pending.
    """

    def __init__(self, client: AgentClient, prompt: str) -> None:
        self._client, self._prompt = client, prompt
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self.has_rung = False
        is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if is_heard and hasattr(signal, "pthread_kill") and threading.current_thread() is threading.main_thread():
            threading.Thread(target=self._watch, name="jupyter-slurm-prompt", daemon=True).start()

    def close(self) -> None:
        """Stop sending signals."""
        with self._lock:
            self._is_over.set()

    def _watch(self) -> None:
        waits = True
        while waits and not self._is_over.wait(_WAIT_STEP_S):
            waits = _is_open(self._client, self._prompt)
        with self._lock:
            if not self._is_over.is_set():
                self.has_rung = True
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _unless_rung(bell: _WakeSignal, call: Callable[[], _T]) -> _T | None:
    """Return the result of a call, or None if the signal was sent meanwhile."""
    try:
        answer = call()
        bell.close()
        if bell.has_rung:
            time.sleep(_SIGNAL_TIMEOUT_S)  # until the interrupt arrives; else it would reach unrelated code
    except KeyboardInterrupt:
        bell.close()
        if not bell.has_rung:
            raise
        return None
    return answer


def _show_prompt(prompt: api.Prompt) -> None:
    """Show a prompt. Its first line is that of jupyter_slurm: no host can print at its left edge."""
    host = printable(prompt["host"])
    if prompt["kind"] in ("passphrase", "host-key"):
        head = f"For {host}, jupyter-slurm asks you:"
    else:
        head = f"{host} asks:" if prompt["questions"] else f"{host} says:"
    parts = [printable(prompt[name]).strip() for name in ("title", "instruction")]
    lines = [line for part in parts if part for line in part.split("\n")]
    sys.stdout.write("".join(f"{line}\n" for line in (head, *(_INDENT + line for line in lines))))
    sys.stdout.flush()


def _hidden(text: str) -> str:
    """Ask for a secret, never with echo."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)
        return getpass.getpass(text)


def ask_prompt(prompt: api.Prompt, is_open: Callable[[], bool] = lambda: True) -> list[str]:
    """Put one prompt to the user at this terminal or notebook, and return the answer.

    ``is_open`` returns whether the prompt still waits for an answer. JupyterLab removes the field of a prompt that was
    answered in its dialog by an empty answer.

    Raises
    ------
    LoginDeclined
        The user ended the input.
    SlurmError
        This process cannot ask the user.
    """
    _show_prompt(prompt)
    answers = []
    for question in prompt["questions"]:
        text = printable(question["text"]).replace("\n", " ")
        text = _INDENT + (text if text.endswith(" ") else f"{text} ")
        try:
            answer = input(text) if question["echo"] else _hidden(text)
            # As of ssh, Enter alone is not a refusal.
            while prompt["kind"] == "host-key" and not answer.strip() and is_open():
                answer = input(f"{_INDENT}Type yes, no, or the fingerprint: ")
            answers.append(answer)
        except (EOFError, OSError, RuntimeError, NotImplementedError, getpass.GetPassWarning) as error:
            if isinstance(error, EOFError) and sys.stdin and sys.stdin.isatty():
                raise LoginDeclined(
                    f"The prompt of {prompt['host']} was not answered.", hint="Connect again to answer it."
                ) from None
            raise SlurmError(
                f"{prompt['host']} asks for input, and this process cannot show a prompt.",
                hint=f"Run `jupyter slurm connect {prompt['cluster']}` in a terminal. Notebooks share the login.",
            ) from error
    return answers
