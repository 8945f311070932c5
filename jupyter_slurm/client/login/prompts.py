"""Prompts of a log-in, put to the person at a notebook or a terminal."""

from __future__ import annotations

import contextlib
import getpass
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import AgentError, LoginDeclined, PromptGone, SlurmError

if TYPE_CHECKING:
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.domain import api_types as api

__all__ = ["ask", "put"]

_T = TypeVar("_T")
_STEP = 0.3
_SURELY = 5.0  # seconds within which a signal arrives
_INDENT = "  "


def put(client: AgentClient, prompt: api.Prompt, *, declines: bool) -> None:
    """Ask the person and pass on what is said; who interrupts declines.

    Nobody is waited for when it is answered at another front door meanwhile, in JupyterLab's dialog perhaps. Where
    nobody can be asked the question stays, for somebody who is at another front door.
    """
    path = f"/v1/prompts/{prompt['id']}"
    try:
        with contextlib.closing(_WakeSignal(client, prompt["id"])) as bell:
            answers = _unless_rung(bell, lambda: ask(prompt))
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
        sys.stdout.write(f"\n{_INDENT}Settled: it was answered somewhere else, or the log-in ended.\n")
        return
    with contextlib.suppress(PromptGone):
        client.post(path, json={"answers": answers})


class _WakeSignal:
    """Calls the main thread back from reading a line, once a prompt does not wait for an answer any more.

    Only a signal ends such a reading: it is the one by which a person interrupts.

    Attributes
    ----------
    has_rung : bool
        An interrupt is on its way that no person meant.
    """

    def __init__(self, client: AgentClient, prompt: str) -> None:
        self._client, self._prompt = client, prompt
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self.has_rung = False
        is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if is_heard and hasattr(signal, "pthread_kill") and threading.current_thread() is threading.main_thread():
            threading.Thread(target=self._watch, name="jupyter-slurm-prompt", daemon=True).start()

    def close(self) -> None:
        """Do not ring any more."""
        with self._lock:
            self._is_over.set()

    def _watch(self) -> None:
        waits = True
        while waits and not self._is_over.wait(_STEP):
            try:
                waits = any(prompt["id"] == self._prompt for prompt in self._client.get("/v1/prompts"))
            except SlurmError:  # the agent has ended, and with it the log-in
                waits = False
        with self._lock:
            if not self._is_over.is_set():
                self.has_rung = True
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _unless_rung(bell: _WakeSignal, call: Callable[[], _T]) -> _T | None:
    """Return what a call returns, or None when the bell has rung meanwhile."""
    try:
        answer = call()
        bell.close()
        if bell.has_rung:
            time.sleep(_SURELY)  # until the interrupt comes, or it would come to somebody who knows nothing of it
    except KeyboardInterrupt:
        bell.close()
        if not bell.has_rung:
            raise
        return None
    return answer


def _say(prompt: api.Prompt) -> None:
    """Show what is asked; the first line is ours, and what stands at its left edge no host can say."""
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
    """Ask for a secret, never where it would be shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)
        return getpass.getpass(text)


def ask(prompt: api.Prompt) -> list[str]:
    """Put one prompt to the person at this terminal or notebook, and return what is said.

    Raises
    ------
    LoginDeclined
        The person ended the input.
    SlurmError
        Nobody can be asked here.
    """
    _say(prompt)
    answers = []
    for question in prompt["questions"]:
        text = printable(question["text"]).replace("\n", " ")
        text = _INDENT + (text if text.endswith(" ") else f"{text} ")
        try:
            answers.append(input(text) if question["echo"] else _hidden(text))
        except (EOFError, OSError, RuntimeError, NotImplementedError, getpass.GetPassWarning) as error:
            if isinstance(error, EOFError) and sys.stdin and sys.stdin.isatty():
                raise LoginDeclined(
                    f"The question of {prompt['host']} was not answered.", hint="Connect again to be asked again."
                ) from None
            raise SlurmError(
                f"{prompt['host']} asks for something, and nobody can be asked here.",
                hint=f"Run `jupyter slurm connect {prompt['cluster']}` in a terminal; the log-in serves this, too.",
            ) from error
    return answers
