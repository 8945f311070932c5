"""Generated parts of ``code-map.md``: the picture and the table of folders, made from imports and docstrings.

python docs/development/code_map.py            write them
python docs/development/code_map.py --check    exit with 1 if they are stale
"""

from __future__ import annotations

import argparse
import ast
import html
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import grimp

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = "jupyter_slurm"
PAGE, PICTURE = HERE / "code-map.md", HERE / "code-map.svg"
BEGIN, END = "<!-- generated: folders -->", "<!-- end of generated: folders -->"

# An entry point of the command line in the embedded cluster, and the command line's way to it: a pair by intent.
IGNORED = {("embedded", "cli")}

BOX_WIDTH, BOX_HEIGHT, GAP, ROW_GAP, MARGIN, TITLE = 132, 40, 14, 46, 24, 34

Edges = Mapping[str, set[str]]


def read_imports(parent: str) -> dict[str, set[str]]:
    """Return which child of a package imports which, over all modules below them (typing imports count)."""
    graph = grimp.build_graph(PACKAGE)
    children = {name.rpartition(".")[2] for name in graph.find_children(parent)}
    edges: dict[str, set[str]] = {child: set() for child in children if child not in ("__init__", "_version")}
    for source in graph.find_descendants(parent):
        for target in graph.find_modules_directly_imported_by(source):
            if target.startswith(f"{parent}."):
                pair = source[len(parent) + 1 :].split(".")[0], target[len(parent) + 1 :].split(".")[0]
                if pair[0] != pair[1] and pair not in IGNORED and set(pair) <= set(edges):
                    edges[pair[0]].add(pair[1])
    return edges


def arrange(edges: Edges) -> list[list[str]]:
    """Return the boxes in rows: each stands above all that it imports."""
    levels: dict[str, int] = {}

    def level(box: str, path: tuple[str, ...] = ()) -> int:
        if box in path:
            raise ValueError(f"import circle: {' -> '.join((*path, box))}")
        if box not in levels:
            levels[box] = 1 + max((level(below, (*path, box)) for below in edges[box]), default=-1)
        return levels[box]

    rows: dict[int, list[str]] = defaultdict(list)
    for box in sorted(edges):
        rows[level(box)].append(box)
    return [rows[number] for number in sorted(rows, reverse=True)]


def reduce_edges(edges: Edges) -> Iterator[tuple[str, str]]:
    """Yield the arrows that no longer path of arrows implies."""

    def reachable(box: str) -> set[str]:
        return {box}.union(*(reachable(below) for below in edges[box]))

    for box in sorted(edges):
        for below in sorted(edges[box]):
            if not any(below in reachable(other) for other in edges[box] - {below}):
                yield box, below


def draw_panel(title: str, parent: str, left: int) -> tuple[list[str], int, int]:
    """Return the SVG elements of one panel, its width and its height (pixels)."""
    edges = read_imports(parent)
    rows = arrange(edges)
    widest = max(len(row) for row in rows)
    width = widest * (BOX_WIDTH + GAP) - GAP
    places: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        start = left + (width - (len(row) * (BOX_WIDTH + GAP) - GAP)) / 2
        for place, box in enumerate(row):
            places[box] = start + place * (BOX_WIDTH + GAP), MARGIN + TITLE + number * (BOX_HEIGHT + ROW_GAP)
    parts = [f'<text class="title" x="{left}" y="{MARGIN + 12}">{html.escape(title)}</text>']
    for box, below in reduce_edges(edges):
        (x1, y1), (x2, y2) = places[box], places[below]
        parts.append(
            f'<line x1="{x1 + BOX_WIDTH / 2:.0f}" y1="{y1 + BOX_HEIGHT:.0f}" '
            f'x2="{x2 + BOX_WIDTH / 2:.0f}" y2="{y2 - 5:.0f}"/>'
        )
    for box, (x, y) in sorted(places.items()):
        count = count_modules(ROOT / Path(*parent.split("."), box))
        note = f"{count} modules" if count else "module"
        middle = x + BOX_WIDTH / 2
        parts.append(f'<rect x="{x:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4"/>')
        parts.append(f'<text x="{middle:.0f}" y="{y + 17:.0f}">{html.escape(box)}</text>')
        parts.append(f'<text class="note" x="{middle:.0f}" y="{y + 31:.0f}">{note}</text>')
    return parts, width, MARGIN * 2 + TITLE + len(rows) * (BOX_HEIGHT + ROW_GAP) - ROW_GAP


def count_modules(folder: Path) -> int:
    """Return how many modules lie in a folder and below, without the ``__init__.py`` files; 0 for a module."""
    return sum(path.name != "__init__.py" for path in folder.rglob("*.py")) if folder.is_dir() else 0


def draw() -> str:
    """Return the picture: the layers of the package, and the folders of its largest layer."""
    first, width, height = draw_panel(f"{PACKAGE}: an arrow is an import", PACKAGE, MARGIN)
    left = MARGIN + width + 3 * MARGIN
    second, more, other = draw_panel(f"inside {PACKAGE}/services", f"{PACKAGE}.services", left)
    total, tall = left + more + MARGIN, max(height, other)
    style = (
        "svg{background:#fff}text{font:13px sans-serif;text-anchor:middle;fill:#111}.note{font-size:10px;fill:#555}"
        ".title{font-size:15px;text-anchor:start}rect{fill:#eef3fb;stroke:#4a6fa5}"
        "line{stroke:#888;stroke-width:1.2;marker-end:url(#arrow)}"
    )
    marker = (
        '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#888"/></marker>'
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:.0f} {tall:.0f}" role="img">'
    title = "<title>Packages of jupyter_slurm and their imports</title>"
    body = "\n".join([head, title, f"<style>{style}</style>", f"<defs>{marker}</defs>", *first, *second, "</svg>"])
    return body + "\n"


def first_line(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]


def list_folders() -> str:
    """Return the table of folders: what lives in each, and its modules."""
    rows = ["| folder | contents | modules |", "|---|---|---|"]
    for init in sorted((ROOT / PACKAGE).rglob("__init__.py"), key=lambda path: path.parent.parts):
        folder = init.parent
        if "labextension" in folder.relative_to(ROOT).parts:
            continue
        modules = sorted(path.stem for path in folder.glob("*.py") if path.name != "__init__.py")
        names = ", ".join(f"`{name}`" for name in modules)
        rows.append(f"| `{folder.relative_to(ROOT / PACKAGE.rpartition('/')[0])}/` | {first_line(init)} | {names} |")
    return "\n".join(rows)


def render_page(text: str) -> str:
    """Return the page with a new table of folders."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{list_folders()}\n\n{END}{after}"


def main() -> int:
    """Write the generated parts, or check that they are as the code is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a part is stale")
    check = parser.parse_args().check
    sys.path.insert(0, str(ROOT))
    wanted = {PICTURE: draw(), PAGE: render_page(PAGE.read_text("utf-8"))}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    if check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale. Run: python docs/development/code_map.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
