"""Prose of README and documentation: sizes of paragraphs, sentences and pages."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PARAGRAPH_WORDS = 80
SENTENCE_WORDS = 35
MEAN_SENTENCE_WORDS = 18
HOW_TO_WORDS = 1200
README_LINES = 200
README_WORDS = 1000
GENERATED = {"cli", "errors", "http-api", "magics", "settings", "site-profile"}


def find_pages() -> list[Path]:
    """Return the written pages: those of ``docs/`` that are not generated, and the README."""
    pages = [
        path
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if "_build" not in path.parts and not (path.parent.name == "reference" and path.stem in GENERATED)
    ]
    return [*pages, ROOT / "README.md"]


PAGES = find_pages()


def find_paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each paragraph and list item; tables and blocks of code are none."""
    text = re.sub(r"\A---\n.*?\n---\n", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    text = re.sub(
        r"^(`{3,}|~{3,})\{(cell|terminal|eval-rst|toctree|literalinclude)\}", r"\1text", text, flags=re.MULTILINE
    )
    text = re.sub(r"^:{3,}.*$", "", text, flags=re.MULTILINE)  # admonitions and tabs: their content is prose
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for number, token in enumerate(tokens):
        if token.type != "inline" or tokens[number - 1].type != "paragraph_open":
            continue
        parts = [
            " code "
            if child.type == "code_inline"
            else " "
            if child.type in ("softbreak", "hardbreak")
            else child.content
            for child in token.children or []
            if child.type not in ("image", "html_inline")
        ]
        yield (token.map or [0])[0] + 1, re.sub(r"\{\.[\w-]+\}", "", "".join(parts)).strip()


def split_sentences(text: str) -> list[str]:
    """Split a paragraph into sentences."""
    return [one for one in re.split(r"(?<=[.!?:])\s+(?=[A-Z0-9`\"'(]|code\b)", text) if one]


def count_words(text: str) -> int:
    """Return the number of words; a piece of code is one."""
    return len(re.findall(r"\w[\w'’./:-]*", text))


def find_faults(text: str) -> Iterator[str]:
    """Yield a line for each paragraph and sentence that is too long."""
    for line, paragraph in find_paragraphs(text):
        if (words := count_words(paragraph)) > PARAGRAPH_WORDS:
            yield f"{line}: a paragraph of {words} words"
        for sentence in split_sentences(paragraph):
            if (words := count_words(sentence)) > SENTENCE_WORDS:
                yield f"{line}: a sentence of {words} words: {sentence[:60]}…"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_paragraphs_and_sentences_are_short(page: Path) -> None:
    faults = list(find_faults(page.read_text("utf-8")))
    assert not faults, "\n".join(faults)


def test_the_mean_sentence_is_short() -> None:
    lengths = [
        count_words(sentence)
        for page in PAGES
        for _, paragraph in find_paragraphs(page.read_text("utf-8"))
        for sentence in split_sentences(paragraph)
    ]
    assert statistics.mean(lengths) <= MEAN_SENTENCE_WORDS


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "how-to").glob("*.md")), ids=lambda path: path.stem)
def test_a_how_to_is_short(page: Path) -> None:
    words = sum(count_words(text) for _, text in find_paragraphs(page.read_text("utf-8")))
    assert words <= HOW_TO_WORDS


def test_the_readme_is_one_page() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= README_LINES
    assert sum(count_words(paragraph) for _, paragraph in find_paragraphs(text)) <= README_WORDS
    relative = [target for target in re.findall(r"\]\(([^)]+)\)", text) if not target.startswith(("https://", "#"))]
    assert not relative, "PyPI shows only absolute links"


def test_long_texts_are_noticed() -> None:
    text = "# A title\n\n" + "word " * 36 + "end.\n\n```\n" + "code " * 90 + "\n```\n\n" + "Short one. " * 41 + "\n"
    assert [fault.partition(" words")[0] for fault in find_faults(text)] == [
        "3: a sentence of 37",
        "9: a paragraph of 82",
    ]
