"""Which variable of the notebook was meant by a name that is none."""

from __future__ import annotations

import builtins
from difflib import get_close_matches
from typing import Final, Iterable

__all__ = ["meant"]

_NOT_ONES_OWN: Final = frozenset({*dir(builtins), "In", "Out", "exit", "get_ipython", "quit"})


def meant(name: str, namespace: Iterable[str]) -> str:
    """Return `` Did you mean NAME?`` for a person's own variable, and nothing where none is near.

    Parameters
    ----------
    name : str
        What was typed.
    namespace : iterable of str
        The variables there are; what Python and IPython put there is nobody's job and nobody's table.
    """
    own = [known for known in namespace if known[:1] != "_" and known not in _NOT_ONES_OWN]
    near = get_close_matches(name, own, n=1)
    return f" Did you mean {near[0]}?" if near else ""
