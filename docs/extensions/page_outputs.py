"""Outputs of executed pages: one file for each page in ``docs/outputs``, pictures beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Output", "Stored", "load_outputs", "save_outputs"]


@dataclass(frozen=True)
class Output:
    """Part of an output: a text, or a picture (PNG)."""

    text: str = ""
    picture: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Stored:
    """Outputs of a block, under the key of its text; a terminal has one for each command."""

    digest: str
    outputs: tuple[Output, ...]


def load_outputs(folder: Path, page: str) -> list[Stored]:
    """Return the stored outputs of a page's blocks, in order; none if the page was never run."""
    file = folder / f"{page}.json"
    if not file.exists():
        return []
    return [
        Stored(
            block["digest"],
            tuple(
                Output(picture=(file.parent / part["picture"]).read_bytes())
                if "picture" in part
                else Output("\n".join(part["text"]))
                for part in block["outputs"]
            ),
        )
        for block in json.loads(file.read_text("utf-8"))
    ]


def picture_name(page: str, block: int, part: int) -> str:
    """Return the file name of a picture, beside the file of its page."""
    return f"{page.rpartition('/')[2]}-{block + 1}-{part + 1}.png"


def save_outputs(folder: Path, page: str, blocks: Sequence[Stored]) -> None:
    """Write the outputs of a page; blocks that differ from the stored ones only in numbers keep the stored outputs."""
    known = {stored.digest: stored for stored in load_outputs(folder, page)}
    blocks = [
        known[block.digest] if block.digest in known and _form(known[block.digest]) == _form(block) else block
        for block in blocks
    ]
    file = folder / f"{page}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    for old in file.parent.glob(f"{file.stem}-*.png"):
        if re.fullmatch(rf"{re.escape(file.stem)}-\d+-\d+\.png", old.name):
            old.unlink()
    data = []
    for number, block in enumerate(blocks):
        parts: list[dict[str, object]] = []
        for place, output in enumerate(block.outputs):
            if output.picture:
                name = picture_name(page, number, place)
                (file.parent / name).write_bytes(output.picture)
                parts.append({"picture": name})
            else:
                parts.append({"text": output.text.split("\n")})
        data.append({"digest": block.digest, "outputs": parts})
    file.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _form(block: Stored) -> list[str]:
    """Return the outputs without what differs from run to run: numbers, keys, and the widths of columns."""
    texts = ["picture" if output.picture else output.text for output in block.outputs]
    return [re.sub(r"[\s─━-]+", " ", re.sub(r"\b[0-9a-f]*\d[0-9a-f]*\b|\d+", "#", text)) for text in texts]
