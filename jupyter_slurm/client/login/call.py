"""A call that may have to log in first: what hosts ask meanwhile is put to the person who made the call."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from jupyter_slurm.client.login.link_watch import LinkWatch
from jupyter_slurm.client.login.prompts import _STEP, _T, _say, put

if TYPE_CHECKING:
    from jupyter_slurm.agent.client.agent_client import AgentClient

__all__ = ["answering"]

_QUICK = 0.5  # seconds in which a call that asks nothing is done
_SELDOM = 5  # steps between two looks whether it is the link that is waited for


def answering(
    client: AgentClient,
    cluster: str,
    call: Callable[[], _T],
    *,
    meanwhile: Callable[[], None] = lambda: None,
    declines: bool = False,
) -> _T:
    """Make a call and, while it lasts, answer what hosts on the way to a cluster ask.

    Parameters
    ----------
    client : AgentClient
        The way to the agent.
    cluster : str
        Whose prompts are answered here.
    call : callable
        The call, made in a thread of its own.
    meanwhile : callable, optional
        Is called now and then while it lasts, never while a question is put.
    declines : bool
        Whether a question is declined where nobody can be asked here; else it waits for another front door.

    Raises
    ------
    WaitInterrupted
        The person interrupted; open questions are declined.
    """
    try:
        return _answering(client, cluster, call, meanwhile, declines=declines)
    except KeyboardInterrupt:
        from jupyter_slurm.client.interrupts import WaitInterrupted  # few interrupt

        raise WaitInterrupted(f"Interrupted: {cluster} had not answered.") from None


def _answering(
    client: AgentClient, cluster: str, call: Callable[[], _T], meanwhile: Callable[[], None], *, declines: bool
) -> _T:
    done: Future[_T] = Future()
    # Not a pool's thread: nobody waits for it when the person gives up.
    threading.Thread(target=_make, args=(call, done), name="jupyter-slurm-call", daemon=True).start()
    wait, read, turns = _QUICK, set[str](), 0
    silence = LinkWatch(client, cluster)
    while True:
        with contextlib.suppress(TimeoutError):
            return done.result(wait)
        wait = _STEP
        meanwhile()
        turns += 1
        if not turns % _SELDOM and threading.current_thread() is threading.main_thread():
            silence.tell()
        for prompt in client.get("/v1/prompts"):
            if prompt["cluster"] != cluster or prompt["id"] in read or done.done():
                continue
            if prompt["questions"]:
                put(client, prompt, declines=declines)
            else:  # to be read, as "press 1 on your phone": it goes away by itself
                read.add(prompt["id"])
                _say(prompt)


def _make(call: Callable[[], _T], done: Future[_T]) -> None:
    try:
        done.set_result(call())
    except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
        done.set_exception(error)
