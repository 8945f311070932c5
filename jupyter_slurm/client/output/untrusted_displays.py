"""Displays of clusters that are not trusted: without what can run code in the browser of the user."""

from __future__ import annotations

import re
from html import escape, unescape
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, Final

from jupyter_slurm.client.trust import HOW_TO_TRUST, is_trusted

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import MimeBundle

__all__ = ["screened"]

_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_BASE64: Final = re.compile(r"[A-Za-z0-9+/=\s]*")
_ACTIVE_MARKDOWN: Final = re.compile(r"[<&]|script\s*:|data\s*:", re.IGNORECASE)
_ACTIVE_LATEX: Final = re.compile(r"[<&]|script\s*:|\\(?:href|url|html|class|css|style|data|require|unicode|include)")


def screened(cluster: str, data: MimeBundle, metadata: MimeBundle) -> tuple[MimeBundle, MimeBundle]:
    """Return a display as it is, or without the types that can run code if its cluster is not trusted.

    Jupyter runs the scripts in outputs of cells that were run. Tables, text and figures are kept: HTML is written again
    from known elements, and SVG is shown as an image, in which no script runs.
    """
    if is_trusted(cluster):
        return data, metadata
    kept: dict[str, Any] = {}
    left_out = []
    for kind, content in data.items():
        found, is_whole = _screened_type(kind, content)
        kept.update(found)
        if not is_whole:
            left_out.append(kind)
    if left_out and not _IMAGES & kept.keys():
        note = (
            f"Not shown: {', '.join(left_out)}. It can run code in your browser, and the cluster {cluster} is not "
            f"trusted. {HOW_TO_TRUST}"
        )
        text = kept.get("text/plain")
        kept["text/plain"] = f"{text}\n{note}" if text else note
        if "text/html" in kept:
            kept["text/html"] += f"<p><em>{escape(note)}</em></p>"
    return kept, {kind: about for kind, about in metadata.items() if kind in _IMAGES}


def _screened_type(kind: str, content: Any) -> tuple[dict[str, Any], bool]:
    """Return what is kept of one type, and whether that is all of it."""
    if kind == "application/json":
        return {kind: content}, True
    text = "".join(content) if isinstance(content, list) and all(isinstance(line, str) for line in content) else content
    if not isinstance(text, str):
        return {}, False
    if kind in _IMAGES:
        return ({kind: text}, True) if _BASE64.fullmatch(text) else ({}, False)
    if kind == "text/html":
        return _screened_html(text)
    if kind == "image/svg+xml":
        image = "".join(f"%{byte:02x}" for byte in text.encode("utf-8", "replace"))
        return {"text/html": f'<img src="data:image/svg+xml,{image}">'}, True
    active = {"text/markdown": _ACTIVE_MARKDOWN, "text/latex": _ACTIVE_LATEX, "text/plain": None}
    if kind in active and not ((pattern := active[kind]) and pattern.search(text)):
        return {kind: text}, True
    return {}, False


def _screened_html(source: str) -> tuple[dict[str, Any], bool]:
    """Return what is kept of HTML, and whether that is all of it; nothing is kept of more than a browser shows."""
    if len(source) > _MAX_HTML_CHARACTERS:
        return {}, False
    try:
        html = _Rewriter(source)
    except (AssertionError, RecursionError, ValueError):  # the parser refuses a section like <![x[
        return {}, False
    return ({"text/html": html.text} if html.has_content else {}), html.is_whole


_MAX_HTML_CHARACTERS: Final = 2 << 20
_MAX_STYLE_CHARACTERS: Final = 1000
_MAX_DEPTH: Final = 200  # elements within each other
_ELEMENTS: Final = frozenset(
    "a b blockquote br caption code col colgroup dd details div dl dt em figcaption figure h1 h2 h3 h4 h5 h6 hr i img "
    "kbd li mark ol p pre progress s small span strong sub summary sup table tbody td tfoot th thead tr u ul".split()
)
_CELLS = ("td", "th")
_ENDED_BY: Final = {  # elements whose end tags HTML leaves out
    "p": ("p",),
    "li": ("li",),
    "dt": ("dt", "dd"),
    "dd": ("dt", "dd"),
    "td": _CELLS,
    "th": _CELLS,
    "tr": (*_CELLS, "tr"),
}
_VOID: Final = frozenset({"br", "col", "hr", "img"})
_SILENT: Final = frozenset({"script", "style", "svg", "math", "title", "template", "head"})  # their text is no text
_PLAIN: Final = frozenset(
    {"body", "head", "html", "meta", "style", "title", "tt", "font", "center"}
)  # nothing that acts
_NUMBERS: Final = frozenset({"border", "colspan", "rowspan", "width", "height", "max", "value", "start"})
_WORDS: Final = frozenset({"align", "valign", "halign", "title", "alt", "scope", "open"})
_CLASSES: Final = frozenset({"dataframe"})
_STYLE: Final = re.compile(
    r"(?:(?:text-align|color|background-color|font-weight|font-style|font-family|font-size|width|height|max-width|"
    r"padding|margin|border|border-collapse|white-space|vertical-align)\s*:[-#\w\s.%,]*(?:;\s*|$))*"
)
_LINK: Final = re.compile(r"https?://[^\s\"'<>]*", re.IGNORECASE)
_PICTURE: Final = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*")


class _Rewriter(HTMLParser):
    """Writer of HTML that has the known elements and attributes of another one, and its text.

    Attributes
    ----------
    is_whole : bool
        Whether nothing was left out that could act; the look may differ.
    has_content : bool
        Whether a reader would see something.
    """

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.is_whole, self.has_content = True, False
        self._parts: list[str] = []
        self._open: list[str] = []
        self._silent: list[str] = []
        self.feed(source)
        self.handle_data(unescape(self.rawdata))  # not close(), which reads the rest again at each "<"
        self._parts += [f"</{tag}>" for tag in reversed(self._open)]

    @property
    def text(self) -> str:
        """The new HTML."""
        return "".join(self._parts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Write an element that is known."""
        if tag in _SILENT and tag != "head":
            self._silent.append(tag)
        if tag not in _ELEMENTS:
            self.is_whole &= tag in _PLAIN
            return
        if self._silent:
            return
        while self._open and self._open[-1] in _ENDED_BY.get(tag, ()):
            self._parts.append(f"</{self._open.pop()}>")
        if tag not in _VOID and len(self._open) >= _MAX_DEPTH:
            self.is_whole = False
            return
        kept = "".join(f' {name}="{escape(value)}"' for name, value in self._attributes(tag, attrs))
        self._parts.append(f"<{tag}{kept}>")
        self.has_content |= tag == "img" and bool(kept)
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close an element that is open."""
        if self._silent:
            if tag == self._silent[-1]:
                self._silent.pop()
        elif tag in self._open:
            while (closed := self._open.pop()) != tag:
                self._parts.append(f"</{closed}>")
            self._parts.append(f"</{tag}>")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Write an element without content."""
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        """Write text."""
        if not self._silent:
            self._parts.append(escape(data))
            self.has_content |= bool(data.strip())

    def _attributes(self, tag: str, attrs: list[tuple[str, str | None]]) -> list[tuple[str, str]]:
        kept = []
        for name, given in attrs:
            value = given or ""
            fits = {
                "href": tag == "a" and _LINK.fullmatch(value),
                "src": tag == "img" and _PICTURE.fullmatch(value),
                "style": len(value) <= _MAX_STYLE_CHARACTERS and _STYLE.fullmatch(value),
                "class": set(value.split()) <= _CLASSES,
            }
            if fits.get(name) or name in _WORDS or (name in _NUMBERS and re.fullmatch(r"[\d.]+(px|%|em)?", value)):
                kept.append((name, value))
            elif name.startswith("on") or name in ("href", "src", "srcdoc", "action", "formaction"):
                self.is_whole = False
        return kept
