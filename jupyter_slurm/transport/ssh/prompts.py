"""What a host wants to know from the person, and how the question gets there.

Answers are handed to whoever asked. They are kept nowhere, and never logged.
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
    """One line to be answered; ``echo``: what is typed may be seen."""

    text: str
    echo: bool = False


@dataclass(frozen=True)
class Prompt:
    """What one host asks at once.

    Attributes
    ----------
    host : str
        The label of the host: which one of the chain, and whose log-in.
    kind : str
        ``password``, ``passphrase``, ``keyboard-interactive`` or ``host-key``.
    title, instruction : str
        What the server, or we, say about it; free of control characters, and may have several lines.
    questions : tuple of Question
        None of them: something to be read ("press 1 on your phone"). It goes away by itself when the server goes on.
    """

    host: str
    kind: Kind
    title: str = ""
    instruction: str = ""
    questions: tuple[Question, ...] = ()


class Prompter(Protocol):
    """Whoever can ask the person. It is cancelled when the question is of no interest any more."""

    async def ask(self, prompt: Prompt) -> Sequence[str] | None:
        """Return one answer for each question; None: the person declined."""
        ...


class Asker:
    """Bring prompts from the thread of a log-in to the event loop in which the person can be asked."""

    def __init__(self, prompter: Prompter, loop: asyncio.AbstractEventLoop) -> None:
        self._prompter, self._loop = prompter, loop

    def start(self, prompt: Prompt) -> Future[list[str] | None]:
        """Ask; the future has the answers, and cancelling it takes the question back."""
        return asyncio.run_coroutine_threadsafe(self._ask(prompt), self._loop)

    def ask(self, prompt: Prompt) -> list[str] | None:
        """Ask and wait."""
        return self.start(prompt).result()

    async def _ask(self, prompt: Prompt) -> list[str] | None:
        answers = await self._prompter.ask(prompt)
        if answers is None or (len(answers) != len(prompt.questions)):
            return None
        return list(answers)


def printable(text: str | bytes, limit: int = 4096) -> str:
    """Return text of a server without what could move a cursor, hide letters or turn their direction."""
    if isinstance(text, bytes):
        text = text[: 4 * limit].decode("utf-8", "replace")
    lines = text[:limit].replace("\r\n", "\n").expandtabs(8)
    return "".join(
        c for c in lines if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
    ).strip("\n")
