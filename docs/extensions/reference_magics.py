"""Page ``reference/magics``: the magics with their keywords and help."""

from __future__ import annotations

from markdown_text import block, table

from jupyter_slurm.magics import help as magic_help
from jupyter_slurm.magics import remote, salloc, sbatch, srun

_HEAD = """\
# Magics

`%load_ext jupyter_slurm` registers the magics. Options with dashes are Slurm's own and are sent unchanged. Keywords
without dashes are jupyter_slurm's. `%%sbatch?` shows the help of a magic in the notebook.

"""
_KEYWORDS = {
    "sbatch": sbatch.CELL_KEYWORDS,
    "salloc": salloc.KEYWORDS,
    "srun": srun.CELL_KEYWORDS,
    "remote": remote.CELL_KEYWORDS,
}


def typed(name: str, takes_value: bool | None) -> str:
    """Return a keyword as it is typed: whether it takes a value, or may take one."""
    return f"`{name}`" if takes_value is False else f"`{name}=…`" if takes_value else f"`{name}`, `{name}=…`"


def page() -> str:
    """Return the page."""
    parts = [_HEAD]
    for magic, keywords in _KEYWORDS.items():
        texts = magic_help.keyword_help(magic)
        rows = [(typed(name, takes), texts.get(name, "")) for name, takes in sorted(keywords.items())]
        head = magic_help._SUBMITTING[magic][0]
        parts += [f"## %%{magic}\n\n", table(("Keyword", "Meaning"), rows), "\n", block(head), "\n"]
    parts += ["## %slurm\n\n", block(magic_help.help_for("slurm")), "\n"]
    parts.append(
        "## Slurm's own commands\n\nThese magics run the Slurm command of the same name with any of its options.\n\n"
    )
    rows = [
        (f"`%{name}`", title, " <br> ".join(f"`{one.splitlines()[0]}`" for one in examples))
        for name, (title, examples) in magic_help._TEXTS.items()
    ]
    parts.append(table(("Magic", "Purpose", "Examples"), rows))
    return "".join(parts)
