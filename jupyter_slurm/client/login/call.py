"""Call that may have to log in first: the prompts of hosts are put to the user who made the call."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from jupyter_slurm.client.login.link_watch import LinkWatch
from jupyter_slurm.client.login.prompt_display import _T, _WAIT_STEP_S, _show_prompt, answer_prompt

if TYPE_CHECKING:
    from jupyter_slurm.agent.client.agent_client import AgentClient

__all__ = ["answering"]

_QUICK_CALL_S = 0.5  # seconds in which a call without prompts is done
_STEPS_PER_LINK_CHECK = 5  # steps between two checks whether the link is the cause of the wait


def answering(
    client: AgentClient,
    cluster: str,
    call: Callable[[], _T],
    *,
    on_wait: Callable[[], None] = lambda: None,
    declines: bool = False,
    asking: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    others: Collection[str] = (),
) -> _T:
    """Make a call and answer the prompts of the cluster's hosts during it.

    Parameters
    ----------
    client : AgentClient
        Client of the agent.
    cluster : str
        Cluster whose prompts this process answers.
    call : callable
        The call, made in a thread of its own.
    on_wait : callable, optional
        Called now and then during the call, never during a prompt.
    declines : bool
        Whether to decline a prompt if this process cannot ask the user; else the prompt waits for another front end.
    asking : callable, optional
        Returns a context in which a prompt is put to the user.
    others : collection of str, optional
        More clusters of the call, whose prompts this process answers as well.

    Raises
    ------
    WaitInterrupted
        The user interrupted; open prompts are declined.
    """
    try:
        return _answering(client, [cluster, *others], call, on_wait, declines=declines, asking=asking)
    except KeyboardInterrupt:
        from jupyter_slurm.client.interrupts import WaitInterrupted  # rarely needed

        raise WaitInterrupted(f"Interrupted: {cluster} has not answered.") from None


def _answering(
    client: AgentClient,
    clusters: Sequence[str],
    call: Callable[[], _T],
    on_wait: Callable[[], None],
    *,
    declines: bool,
    asking: Callable[[], AbstractContextManager[None]],
) -> _T:
    done: Future[_T] = Future()
    # Not a thread of a pool: after an interrupt, the end of the process must not wait for it.
    threading.Thread(target=_run_call, args=(call, done), name="jupyter-slurm-call", daemon=True).start()
    wait, read, turns = _QUICK_CALL_S, set[str](), 0
    silence = LinkWatch(client, clusters[0])
    while True:
        with contextlib.suppress(TimeoutError):
            return done.result(wait)
        wait = _WAIT_STEP_S
        on_wait()
        turns += 1
        if not turns % _STEPS_PER_LINK_CHECK and threading.current_thread() is threading.main_thread():
            silence.report()
        for prompt in client.get("/v1/prompts"):
            if prompt["cluster"] not in clusters or prompt["id"] in read or done.done():
                continue
            with asking():
                if prompt["questions"]:
                    answer_prompt(client, prompt, declines=declines)
                else:  # a message to read, such as "press 1 on your phone": it disappears without an answer
                    read.add(prompt["id"])
                    _show_prompt(prompt)


def _run_call(call: Callable[[], _T], done: Future[_T]) -> None:
    try:
        done.set_result(call())
    except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
        done.set_exception(error)
