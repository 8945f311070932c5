"""Variables of a cell: sent with it, and returned by it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from jupyter_slurm.errors import UsageError
from jupyter_slurm.runner.variables import values_file as file_of
from jupyter_slurm.runner.variables.packing import CannotTravel, TooLarge, packed

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["PackedVariables", "parcel"]


class PackedVariables:
    """The variables that a cell sends, packed, and the names of those that it returns.

    Parameters
    ----------
    sent, names : sequence of str
        Names of variables.
    namespace : mapping
        Namespace of the variables.
    limit : int
        Maximum bytes of the sent variables together, and of each returned value.
    array_variables : set of str
        Names of variables that each task of the job gets otherwise.

    Raises
    ------
    UsageError
        Some variables cannot be sent; the message names each with its reason. Nothing was written.
    """

    def __init__(
        self,
        sent: Sequence[str],
        names: Sequence[str],
        namespace: Mapping[str, object],
        limit: int,
        array_variables: Set[str] = frozenset(),
    ) -> None:
        self.sent, self.output_names, self.limit = list(sent), list(names), limit
        try:
            self._items = packed(self.sent, namespace, limit, array_variables)
        except TooLarge as error:
            hint = "Read the data from a file in the job, or raise c.JupyterSlurm.values_limit."
            raise UsageError(f"The variables of the cell are {error}.", hint=hint) from error
        except CannotTravel as error:
            raise UsageError(f"Not submitted: {error}", hint="Create these variables in the cell instead.") from error

    @contextlib.contextmanager
    def on_disk(self) -> Iterator[api.Variables]:
        """Write the variables into a private file for the time of the submission; yield their API object."""
        told: api.Variables = {"in": self.sent, "out": self.output_names, "limit": self.limit}
        if not self._items:
            yield told
            return
        with tempfile.TemporaryDirectory(prefix="jupyter-slurm-") as folder:
            path = os.path.join(folder, "in.values")
            file_of.write(path, self._items)
            yield {**told, "file": path}


def parcel(
    keywords: Mapping[str, str | None],
    namespace: Mapping[str, object],
    limit: int,
    array_variables: Set[str] = frozenset(),
) -> PackedVariables:
    """Return the variables that ``in=`` and ``out=`` of a magic line request; see :class:`PackedVariables`."""
    asked = {word: _names(word, keywords[word] or "") for word in ("in", "out") if word in keywords}
    return PackedVariables(asked.get("in", []), asked.get("out", []), namespace, limit, array_variables)


def _names(word: str, text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if not name.isidentifier():
            raise UsageError(
                f"{word}={text}: {name!r} is not a variable name.", hint=f"Use for example {word}=x,model."
            )
    return names
