"""Types of what Jupyter's own programs say, by their documents: messages, outputs, kernelspecs and sessions.

Imported for type checkers only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

__all__ = ["Kernelspec", "MessagePart", "MimeBundle", "NotebookKernel", "NotebookSession"]

MessagePart = dict[str, Any]
"""The header or the content of a message: the kind of the message decides which keys it has."""

MimeBundle = dict[str, Any]
"""An output by MIME type, in all forms that front ends may know; or what is said of these forms, by the same types."""


class Kernelspec(TypedDict, total=False):
    """The content of a ``kernel.json``."""

    argv: Sequence[str]
    display_name: str
    language: str
    interrupt_mode: str
    env: Mapping[str, str]
    metadata: Mapping[str, Any]


class NotebookKernel(TypedDict):
    """The kernel of a notebook, as a Jupyter server knows it."""

    id: str
    name: str


class NotebookSession(TypedDict):
    """A notebook that a Jupyter server has open."""

    id: str
    path: str
    kernel: NotebookKernel
