"""Page ``reference/errors``: the classes of errors with their codes, from ``errors.py``."""

from __future__ import annotations

import inspect

from markdown_text import table

from jupyter_slurm import errors

_HEAD = """\
# Errors

Every error has a message that says what failed and why, and a hint that says what to do (`error.hint`). In Python,
catch the class: `from jupyter_slurm.errors import JobFailed`. Over HTTP, an error is a problem document
([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)) whose `type` ends with the code.
[Troubleshooting](../help/troubleshooting.md) explains frequent ones.

"""


def depth(cls: type) -> int:
    """Return the distance to the base class."""
    return cls.__mro__.index(errors.SlurmError)


def page() -> str:
    """Return the page."""
    rows = []
    for cls in errors._tree(errors.SlurmError):
        meaning = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("``", "`")
        rows.append((f"{'— ' * depth(cls)}`{cls.__name__}`", f"`{cls.code}`", str(cls.status), meaning))
    return _HEAD + table(("Class", "Code", "HTTP status", "Meaning"), rows)
