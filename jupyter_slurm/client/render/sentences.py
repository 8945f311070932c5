"""Texts of several sources as sentences."""

from __future__ import annotations

from typing import Any

__all__ = ["sentences"]


def sentences(*parts: Any) -> str:
    """Join texts of several sources, each as a sentence of its own."""
    said = [text for part in parts if (text := str(part or "").strip())]
    return " ".join(text if text[-1] in ".!?:…" else f"{text}." for text in said)
