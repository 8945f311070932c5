"""Words about a value that the API does not accept: which one it is, and what is allowed.

Users see them: a value of a command line or of a magic may reach the API unchecked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["missing_words", "value_words"]

_SHOWN: Final = 100  # characters of a value
_CLUSTER: Final = ("name of a cluster", "the name of a site profile, or local: `%slurm list` shows them")
_JOB: Final = ("job", "an ID, such as 12 or 12_3, or a name")
_FORMS: Final[Mapping[str, tuple[str, str]]] = {
    "account": ("account", "a name of letters, digits and . _ @ + -"),
    "cluster": _CLUSTER,
    "dest": ("destination", "a path that begins with / or ~/ or a variable, such as $SCRATCH/project"),
    "env": ("environment", "a name or a path on one line"),
    "from": ("source of an image", "docker, podman, or a path that begins with / or ~/"),
    "job": _JOB,
    "jobs": _JOB,
    "kernel": ("name of a kernel", "a name of letters, digits and . _ -"),
    "name": ("name", "letters, digits and . _ -, first a letter or a digit"),
    "node": ("node", "the name or the address of a host"),
    "on": _JOB,
    "packages": ("package", "a name, with a version if it matters: numpy==2.1"),
    "pip": ("package", "a name, with a version if it matters: numpy==2.1"),
    "profile": _CLUSTER,
    "python": ("path of python", "a path that begins with /, or the name of a program"),
    "signal": ("signal", "a name or a number, such as USR1 or 10"),
    "time_limit": ("time limit", "a time as for --time: 4:00:00 or 1-12:00:00"),
    "to_cluster": _CLUSTER,
}
_VERSION: Final = ("version of Python", "3 and a number, such as 3.12")
_LISTS: Final = {
    "cluster": "`%slurm list` shows your clusters.",
    "job": "List your jobs with `jupyter_slurm.jobs()`.",
    "session": "`jupyter slurm sessions` lists the sessions.",
    "terminal": "`jupyter slurm shell --list` lists the terminals.",
    "transfer": "`%slurm transfers` lists the transfers.",
}


def missing_words(parameter: str, value: str) -> tuple[str, str]:
    """Return message and hint for a name in an address that nothing can have."""
    return f"There is no {parameter} {_shown(value)}.", _LISTS.get(parameter, "")


def value_words(field: str, value: Any, rule: str, definition: Any, schema: Mapping[str, Any]) -> tuple[str, str]:
    """Return message and hint for a value that breaks a rule of its JSON schema; empty: no user gives such a value.

    Parameters
    ----------
    field : str
        Name of the value in the request.
    rule, definition
        Keyword of the schema, such as ``pattern``, and its value there.
    schema : mapping
        The whole schema of the value.
    """
    if field not in _FORMS and rule not in ("minimum", "maximum", "enum"):
        return "", ""
    name, allowed = _FORMS.get(field, (field.replace("_", " "), ""))
    if rule == "pattern" and str(definition).startswith("^3"):
        name, allowed = _VERSION
    if rule in ("minimum", "maximum"):
        low, high = schema.get("minimum"), schema.get("maximum")
        allowed = (
            f"a number from {low} to {high}" if None not in (low, high) else f"a number, at the {rule} {definition}"
        )
    elif rule == "enum" and isinstance(definition, Sequence):
        allowed = f"one of {', '.join(str(one) for one in definition if one is not None)}"
    elif rule == "maxLength":
        allowed = f"at most {definition} characters"
    elif rule not in ("pattern", "minLength", "type"):
        return "", ""
    return f"{_shown(value)} is not a valid {name}.", f"Give {allowed}." if allowed else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
