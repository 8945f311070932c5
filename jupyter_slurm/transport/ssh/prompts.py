"""Questions of a host to the user, and their delivery.

Answers are passed to the caller only. They are neither stored nor logged.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["Asker", "Kind", "Prompt", "Prompter", "Question", "printable"]

Kind = Literal["password", "passphrase", "keyboard-interactive", "host-key"]


@dataclass(frozen=True)
class Question:
    """A question of one line; ``echo``: the typed answer may be shown."""

    text: str
    echo: bool = False


@dataclass(frozen=True)
class Prompt:
    """Questions that a host asks at the same time.

    Attributes
    ----------
    host : str
        Label of the host: its place on the route, and the user of the login.
    kind : str
        ``password``, ``passphrase``, ``keyboard-interactive`` or ``host-key``.
    title, instruction : str
        Text of the server or of jupyter_slurm, without control characters; may have several lines.
    questions : tuple of Question
        Empty: a notice ("press 1 on your phone"), which disappears when the server continues.
    """

    host: str
    kind: Kind
    title: str = ""
    instruction: str = ""
    questions: tuple[Question, ...] = ()


class Prompter(Protocol):
    """An object that can ask the user. A call is cancelled when its question has lost its purpose."""

    async def ask(self, prompt: Prompt) -> Sequence[str] | None:
        """Return one answer for each question; None: the user declined."""
        ...


class Asker:
    """Bridge that brings prompts from a login's thread to the event loop in which the user can be asked."""

    def __init__(self, prompter: Prompter, loop: asyncio.AbstractEventLoop) -> None:
        self._prompter, self._loop = prompter, loop

    def start(self, prompt: Prompt) -> Future[list[str] | None]:
        """Ask the questions. The returned future has the answers; cancelling it withdraws the questions."""
        return asyncio.run_coroutine_threadsafe(self._prompt(prompt), self._loop)

    def ask(self, prompt: Prompt) -> list[str] | None:
        """Ask the questions and wait for the answers."""
        return self.start(prompt).result()

    async def _prompt(self, prompt: Prompt) -> list[str] | None:
        answers = await self._prompter.ask(prompt)
        if answers is None or (len(answers) != len(prompt.questions)):
            return None
        return list(answers)


def printable(text: str | bytes, limit: int = 4096) -> str:
    """Return a server's text without characters that move a cursor, hide letters or change their direction."""
    if isinstance(text, bytes):
        text = text[: 4 * limit].decode("utf-8", "replace")
    lines = text[:limit].replace("\r\n", "\n").expandtabs(8)
    return "".join(
        c for c in lines if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
    ).strip("\n")
