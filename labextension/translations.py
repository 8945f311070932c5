"""Compare the texts of the panel with its translations: ``python labextension/translations.py [LANGUAGE]``.

Prints, as JSON that can be filled in, what a catalogue lacks, and what it has that no source says any more.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "labextension" / "src"
CATALOGUES = ROOT / "jupyter_slurm" / "locale"

_CALL = re.compile(r"\btrans\._?_(?P<plural>n)?\(\s*")
# What to do when the server does not answer; translated where it is shown. What a function was given is written out
# where it is called.
_HINT = re.compile(r"\b(?:toProblem|_try)\(\s*\w+,(?!\s*(?:trans\.__\(|hint\b))\s*|\bNO_ANSWER = ")
_LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_PLACE = re.compile(r"%\d+")


def catalogue(language: str) -> dict[str, Any]:
    """Return what is translated into a language, such as ``pt_BR``, in the form that JupyterLab reads (Jed's)."""
    path = CATALOGUES / language / "LC_MESSAGES" / "jupyter_slurm.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def texts(source: str) -> Iterator[tuple[str, ...]]:
    """Yield the texts of a source: one, or of something that is counted the singular and the plural.

    Raises
    ------
    ValueError
        A text is not written out where it is used: nobody could translate it.
    """
    for call in _CALL.finditer(source.replace("_trans.", "trans.")):
        at, found = call.end(), []
        text = call.string
        for _ in range(2 if call["plural"] else 1):
            literal = _LITERAL.match(text, at)
            if literal is None:
                raise ValueError(f"not a plain text in double quotes: {text[call.start() : call.end() + 40]!r}")
            found.append(str(json.loads(literal[0])))
            at = literal.end()
            at += len(re.match(r"\s*,?\s*", text[at:])[0])  # type: ignore[index]
        yield tuple(found)
    for place in _HINT.finditer(source):
        literal = _LITERAL.match(source, place.end())
        if literal is None:
            raise ValueError(f"not a plain text in double quotes: {source[place.start() : place.end() + 40]!r}")
        if said := str(json.loads(literal[0])):
            yield (said,)


def used() -> dict[str, int]:
    """Return the texts of all sources, with how many forms each has."""
    found = {}
    for path in sorted([*SOURCES.rglob("*.ts"), *SOURCES.rglob("*.tsx")]):
        try:
            found.update({forms[0]: len(forms) for forms in texts(path.read_text(encoding="utf-8"))})
        except ValueError as error:
            raise ValueError(f"{path.relative_to(ROOT)}: {error}") from None
    return found


def missing(language: str) -> dict[str, list[str]]:
    """Return the texts that a catalogue lacks, or whose forms or places (``%1``) differ from the source's."""
    known = catalogue(language)
    return {
        text: [""] * forms
        for text, forms in used().items()
        if len(known.get(text, [])) != forms
        or any(not form or set(_PLACE.findall(form)) != set(_PLACE.findall(text)) for form in known[text])
    }


def main(arguments: list[str]) -> int:
    """Print what is missing and what is not used any more; the exit status is 1 when something is missing."""
    language = arguments[0] if arguments else "pt_BR"
    lacking, known = missing(language), used()
    print(json.dumps(lacking, indent=2, ensure_ascii=False))
    unused = [text for text in catalogue(language) if text and text not in known]
    if unused:
        print(f"Not used any more: {json.dumps(unused, indent=2, ensure_ascii=False)}", file=sys.stderr)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
