"""Prompts of a login for the user; the first answer counts for all clients."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jupyter_slurm.errors import PromptGone, UsageError
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.transport.ssh.prompts import Prompt

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["PromptQueue"]


class PromptQueue:
    """Queue of the prompts of one cluster.

    Answers go to the caller that asked, and are not stored.

    Parameters
    ----------
    cluster : str
        ID of the cluster.
    bus : EventBus
        Publishes new and settled prompts.
    timeout : float
        Seconds after which a prompt expires.
    clock : callable, optional
        Seconds since the epoch.
    """

    def __init__(
        self, cluster: str, bus: EventBus, *, timeout: float = 600.0, clock: Callable[[], float] = time.time
    ) -> None:
        self._cluster, self._bus, self._timeout, self._clock = cluster, bus, timeout, clock
        self._open: dict[str, tuple[api.Prompt, asyncio.Future[list[str] | None]]] = {}

    def waiting(self) -> list[api.Prompt]:
        """Return the prompts that wait for an answer, oldest first."""
        return [told for told, _ in self._open.values()]

    def has(self, key: str) -> bool:
        """Return whether this queue holds the prompt."""
        return key in self._open

    async def ask(self, prompt: Prompt) -> list[str] | None:
        """Wait for the answers to a prompt; None: declined or expired."""
        key = secrets.token_hex(8)
        told: api.Prompt = {
            "id": key,
            "cluster": self._cluster,
            "host": prompt.host,
            "kind": prompt.kind,
            "title": prompt.title,
            "instruction": prompt.instruction,
            "questions": [{"text": question.text, "echo": question.echo} for question in prompt.questions],
            "asked": self._clock(),
        }
        answered: asyncio.Future[list[str] | None] = asyncio.get_running_loop().create_future()
        self._open[key] = (told, answered)
        self._bus.publish("prompt", told)
        try:
            async with asyncio.timeout(self._timeout):
                return await answered
        except TimeoutError:
            return None
        finally:
            self._open.pop(key, None)
            self._bus.publish("prompt", {**told, "questions": [], "settled": True})

    def withdraw(self) -> None:
        """Withdraw all prompts, because the login has ended."""
        for _, answered in self._open.values():
            if not answered.done():
                answered.set_result(None)

    def answer(self, key: str, answers: Sequence[str] | None) -> None:
        """Answer a prompt; None declines.

        Raises
        ------
        PromptGone
            The prompt was answered elsewhere, or its login ended.
        UsageError
            The number of answers does not match.
        """
        if key not in self._open:
            raise PromptGone(
                "The login prompt is no longer open: it was answered elsewhere, or the login has ended.",
                hint="Connect again if you are not logged in.",
            )
        told, answered = self._open[key]
        if answers is not None and len(answers) != len(told["questions"]):
            raise UsageError(
                f"The prompt has {len(told['questions'])} questions, but {len(answers)} answers were sent.",
                hint="Send one answer for each question.",
            )
        if not answered.done():
            answered.set_result(None if answers is None else list(answers))
