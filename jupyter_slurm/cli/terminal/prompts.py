"""Questions to the user at the terminal."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_slurm.errors import SlurmError

__all__ = ["ask_until_valid", "yes"]


def ask_until_valid(question: str, default: str = "", *, check: Callable[[str], bool] = lambda answer: True) -> str:
    """Ask until the answer is valid.

    Raises
    ------
    SlurmError
        There is no interactive user.
    """
    while True:
        try:
            answer = input(f"{question} [{default}]: " if default else f"{question}: ").strip() or default
        except EOFError:
            raise SlurmError(
                f"Nobody can be asked here: {question}?",
                hint="Run it in a terminal; --help tells how to say it before.",
            ) from None
        if answer and check(answer):
            return answer


def yes(question: str, *, default: bool) -> bool:
    """Ask a yes-or-no question; y and n suffice."""
    words = ("yes", "y", "no", "n")
    answer = ask_until_valid(
        f"{question} (yes/no)", "yes" if default else "no", check=lambda said: said.lower() in words
    )
    return answer.lower() in words[:2]
