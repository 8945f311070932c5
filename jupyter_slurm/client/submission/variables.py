"""Variables that travel with a cell, and what comes back."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from jupyter_slurm.errors import UsageError
from jupyter_slurm.runner.variables import values as file_of
from jupyter_slurm.runner.variables.packing import CannotTravel, TooLarge, packed

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["PackedVariables", "parcel"]


class PackedVariables:
    """What a cell sends along, ready to travel, and the names of what is to come back.

    Parameters
    ----------
    sent, wanted : sequence of str
        Names of variables.
    namespace : mapping
        Where they are.
    limit : int
        Most bytes of what is sent, and of each value that comes back.
    given : set of str
        Names of variables that each task of the job gets without that.

    Raises
    ------
    UsageError
        Something cannot travel: all of that by name, with the reason. Nothing was written.
    """

    def __init__(
        self,
        sent: Sequence[str],
        wanted: Sequence[str],
        namespace: Mapping[str, object],
        limit: int,
        given: Set[str] = frozenset(),
    ) -> None:
        self.sent, self.wanted, self.limit = list(sent), list(wanted), limit
        try:
            self._items = packed(self.sent, namespace, limit, given)
        except TooLarge as error:
            hint = "Let the job read it from a file, or set c.Settings.values_limit."
            raise UsageError(f"What travels with the cell is {error}.", hint=hint) from error
        except CannotTravel as error:
            raise UsageError(f"Not submitted: {error}") from error

    @contextlib.contextmanager
    def on_disk(self) -> Iterator[api.Variables]:
        """Put what is sent into a private file for as long as the submission takes; gives what the API is told."""
        told: api.Variables = {"in": self.sent, "out": self.wanted, "limit": self.limit}
        if not self._items:
            yield told
            return
        with tempfile.TemporaryDirectory(prefix="jupyter-slurm-") as folder:
            path = os.path.join(folder, "in.values")
            file_of.write(path, self._items)
            yield {**told, "file": path}


def parcel(
    words: Mapping[str, str | None], namespace: Mapping[str, object], limit: int, given: Set[str] = frozenset()
) -> PackedVariables:
    """Return what ``in=`` and ``out=`` of a magic line ask for; see :class:`PackedVariables`."""
    asked = {word: _names(word, words[word] or "") for word in ("in", "out") if word in words}
    return PackedVariables(asked.get("in", []), asked.get("out", []), namespace, limit, given)


def _names(word: str, text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if not name.isidentifier():
            raise UsageError(f"{word}={text}: {name!r} is no name of a variable.", hint=f"For example {word}=x,model.")
    return names
