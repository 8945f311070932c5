"""Soft limits of this process, by the letters of ``ulimit`` in a POSIX shell (dash(1))."""

from __future__ import annotations

import resource

__all__ = ["soft_limits"]

# Letter: the limit, and the unit of the letter in bytes.
_LETTERS = {
    "c": (resource.RLIMIT_CORE, 512),
    "d": (resource.RLIMIT_DATA, 1024),
    "f": (resource.RLIMIT_FSIZE, 512),
    "l": (resource.RLIMIT_MEMLOCK, 1024),
    "m": (resource.RLIMIT_RSS, 1024),
    "n": (resource.RLIMIT_NOFILE, 1),
    "p": (resource.RLIMIT_NPROC, 1),
    "s": (resource.RLIMIT_STACK, 1024),
    "t": (resource.RLIMIT_CPU, 1),
    "v": (resource.RLIMIT_AS, 1024),
}


def soft_limits() -> dict[str, str]:
    """Return the limits in the form of ``ulimit -S``."""
    found = {letter: (resource.getrlimit(which)[0], unit) for letter, (which, unit) in _LETTERS.items()}
    return {
        letter: "unlimited" if soft == resource.RLIM_INFINITY else str(soft // unit)
        for letter, (soft, unit) in found.items()
    }
