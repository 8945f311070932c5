"""A call that may have to log in first: what hosts ask meanwhile is put to the person who made the call."""

from __future__ import annotations

import contextlib
import getpass
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_slurm.errors import AgentError, LoginDeclined, PromptGone, SlurmError
from jupyter_slurm.handles.terminal import printable

if TYPE_CHECKING:
    from jupyter_slurm.agent.client import AgentClient

__all__ = ["answering", "ask"]

_T = TypeVar("_T")
_QUICK = 0.5  # seconds in which a call that asks nothing is done
_STEP = 0.3
_INDENT = "  "


def answering(client: AgentClient, cluster: str, call: Callable[[], _T]) -> _T:
    """Make a call and, while it lasts, answer what hosts on the way to a cluster ask.

    Parameters
    ----------
    client : AgentClient
        The way to the agent.
    cluster : str
        Whose prompts are answered here.
    call : callable
        The call, made in a thread of its own.

    Raises
    ------
    KeyboardInterrupt
        The person interrupted; open questions are declined.
    """
    done: Future[_T] = Future()
    # Not a pool's thread: nobody waits for it when the person gives up.
    threading.Thread(target=_make, args=(call, done), name="jupyter-slurm-call", daemon=True).start()
    wait, read = _QUICK, set[str]()
    while True:
        with contextlib.suppress(TimeoutError):
            return done.result(wait)
        wait = _STEP
        for prompt in client.get("/v1/prompts"):
            if prompt["cluster"] != cluster or prompt["id"] in read or done.done():
                continue
            if prompt["questions"]:
                _put(client, prompt)
            else:  # to be read, as "press 1 on your phone": it goes away by itself
                read.add(prompt["id"])
                _say(prompt)


def _make(call: Callable[[], _T], done: Future[_T]) -> None:
    try:
        done.set_result(call())
    except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
        done.set_exception(error)


def _put(client: AgentClient, prompt: Mapping[str, Any]) -> None:
    """Ask the person and pass on what is said; who interrupts declines.

    Where nobody can be asked the question stays, for somebody who is at another front door.
    """
    path = f"/v1/prompts/{prompt['id']}"
    try:
        answers = ask(prompt)
    except (KeyboardInterrupt, LoginDeclined):
        with contextlib.suppress(AgentError):
            client.post(path, json={"answers": None})
        raise
    with contextlib.suppress(PromptGone):
        client.post(path, json={"answers": answers})


def _say(prompt: Mapping[str, Any]) -> None:
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


def ask(prompt: Mapping[str, Any]) -> list[str]:
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
            answers.append(input(text) if question["echo"] else getpass.getpass(text))
        except (EOFError, OSError, RuntimeError, NotImplementedError) as error:
            if isinstance(error, EOFError) and sys.stdin and sys.stdin.isatty():
                raise LoginDeclined(
                    f"The question of {prompt['host']} was not answered.", hint="Connect again to be asked again."
                ) from None
            raise SlurmError(
                f"{prompt['host']} asks for something, and nobody can be asked here.",
                hint=f"Run `jupyter slurm connect {prompt['cluster']}` in a terminal; the log-in serves this, too.",
            ) from error
    return answers
