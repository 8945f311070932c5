"""Types of Jupyter's own documents: messages, outputs, kernelspecs and sessions.

Imported for type checkers only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

__all__ = ["Kernelspec", "MessagePart", "MimeBundle", "NotebookKernel", "NotebookSession"]

MessagePart = dict[str, Any]
"""The header or the content of a message; its keys depend on the kind of the message."""

MimeBundle = dict[str, Any]
"""An output by MIME type, in all forms for front ends; or the metadata of these forms, by the same types."""


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
    """A notebook open in a Jupyter server."""

    id: str
    path: str
    kernel: NotebookKernel
