"""Sphinx extension: directives ``cell`` and ``terminal``, each shown with the outputs of its last run.

The outputs come from ``docs/outputs`` (``make docs-outputs`` renews them). A block whose text has none is a warning.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from page_blocks import find_digest
from page_outputs import Output, load_outputs, picture_name
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

__all__ = ["setup"]

_LOG = logging.getLogger(__name__)
_PLACES = "executed-page-blocks"


class _Executed(SphinxDirective):
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "expect": directives.unchanged,
        "hidden": directives.flag,
        "fails": directives.flag,
    }

    def run(self) -> list[nodes.Node]:
        """Return the block and its outputs."""
        page, folder = self.env.docname, Path(self.env.srcdir, "outputs")
        self.env.note_dependency(str(folder / f"{page}.json"))
        number = self.env.temp_data[_PLACES] = self.env.temp_data.get(_PLACES, -1) + 1
        source = "\n".join(self.content).strip("\n")
        stored = load_outputs(folder, page)
        if number >= len(stored) or stored[number].digest != find_digest(self.name, source):
            _LOG.warning(
                "no stored outputs of this text: run `make docs-outputs`", location=self.get_location(), type="outputs"
            )
            outputs: tuple[Output, ...] = ()
        else:
            outputs = stored[number].outputs
        if "hidden" in self.options:
            return []
        box = nodes.container(classes=["executed", f"executed-{self.name}"])
        box.extend(self.show(source, outputs, number))
        return [box]

    def show(self, source: str, outputs: tuple[Output, ...], number: int) -> list[nodes.Node]:
        """Return the input and the outputs as nodes."""
        raise NotImplementedError

    def _literal(self, text: str, language: str, kind: str) -> nodes.Node:
        block = nodes.literal_block(text, text, language=language, classes=[kind])
        self.set_source_info(block)
        return block


class _Cell(_Executed):
    def show(self, source: str, outputs: tuple[Output, ...], number: int) -> list[nodes.Node]:
        """Return a notebook's cell: the code, then texts and pictures."""
        shown = [self._literal(source, "ipython", "executed-input")]
        page = self.env.docname
        for part, output in enumerate(outputs):
            if output.picture:
                name = Path("/outputs", page).with_name(picture_name(page, number, part)).as_posix()
                shown.append(nodes.image(uri=name, alt="Figure that the cell above shows", classes=["executed-output"]))
            elif output.text:
                shown.append(self._literal(output.text, "text", "executed-output"))
        return shown


class _Terminal(_Executed):
    def show(self, source: str, outputs: tuple[Output, ...], number: int) -> list[nodes.Node]:
        """Return one session: each command, then its output."""
        starts = [at for at, line in enumerate(source.splitlines()) if line.startswith("$ ")]
        lines = source.splitlines()
        parts: list[str] = []
        for command, (begin, end) in enumerate(zip(starts, [*starts[1:], len(lines)], strict=True)):
            parts += lines[begin:end]
            if command < len(outputs) and outputs[command].text:
                parts.append(outputs[command].text)
        return [self._literal("\n".join(parts), "console", "executed-input")]


def _add_style(app: Sphinx) -> None:
    style = Path(__file__).with_suffix(".css")
    app.config.html_static_path.append(str(style))
    app.add_css_file(style.name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("cell", _Cell)
    app.add_directive("terminal", _Terminal)
    app.connect("builder-inited", _add_style)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
