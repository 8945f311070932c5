"""Tests of the pages that compare the guides' commands with jupyter_slurm's, parsed by jupyter_slurm's own parsers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from jupyter_slurm.cli.main import _parser
from jupyter_slurm.client.images.image import KEYWORDS as IMAGE_WORDS
from jupyter_slurm.client.sessions.launch import WORDS as LAUNCH_WORDS
from jupyter_slurm.client.sessions.launch import named_in
from jupyter_slurm.domain.magic_line.parser import command_arguments, parse_cell_line, parse_line_magic
from jupyter_slurm.domain.magic_line.tokenizer import tokenize
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.magics import COMMANDS
from jupyter_slurm.magics.remote import CELL_KEYWORDS as REMOTE_WORDS
from jupyter_slurm.magics.remote import LINE_KEYWORDS as REMOTE_LINE_WORDS
from jupyter_slurm.magics.salloc import KEYWORDS as ALLOCATION_WORDS
from jupyter_slurm.magics.sbatch import CELL_KEYWORDS, FILE_KEYWORDS, check
from jupyter_slurm.magics.slurm import USAGES
from jupyter_slurm.magics.srun import LINE_KEYWORDS
from jupyter_slurm.sites.profile import parse_profile
from jupyter_slurm.sites.shipped import shipped_names

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "clusters").glob("*.md"))}
PAGE = re.sub(r"^```.*?^```$", "", "\n".join(PAGES.values()), flags=re.MULTILINE | re.DOTALL)
# The last column of a table has jupyter_slurm's commands; `|` is escaped in tables.
ROWS = [re.split(r"(?<!\\)\|", row)[1:-1] for row in re.findall(r"^\|.*\|$", PAGE, re.MULTILINE)]
PROSE = re.sub(r"^\|.*\|$", "", PAGE, flags=re.MULTILINE)
OURS = sorted(
    {
        span.replace("\\|", "|")
        for text in (PROSE, *(row[-1] for row in ROWS))
        for span in re.findall(r"`([^`]+)`", text)
        if re.match(r"%(?!load_ext)|jupyter slurm ", span) and " " in span
    }
)

_ANYWHERE = {
    "%%sbatch": ("sbatch", CELL_KEYWORDS),
    "%%remote": ("srun", REMOTE_WORDS),
    "%remote": ("srun", REMOTE_LINE_WORDS),
    "%salloc": ("sbatch", ALLOCATION_WORDS),
}
_FIRST = {"%sbatch": ("sbatch", FILE_KEYWORDS), "%srun": ("srun", LINE_KEYWORDS)}


def parse(line: str) -> None:
    """Parse a command as a notebook or a terminal would; raise if it is not valid."""
    if line.startswith("jupyter slurm "):
        words = shlex.split(line)[2:]
        module, parser = _parser(words[0])
        assert module is not None, line
        parser.parse_args(words)
        if words[0] in ("launch", "image"):
            _parse_slurm(shlex.join(words))
        return
    magic, _, rest = line.partition(" ")
    if magic in _ANYWHERE:
        command, known = _ANYWHERE[magic]
        parsed = parse_cell_line(rest, OptionTable.for_command(command), known)
        check(parsed)
        assert not parsed.rest
    elif magic in _FIRST:
        command, known = _FIRST[magic]
        assert parse_line_magic(rest, OptionTable.for_command(command), known).rest
    elif magic.removeprefix("%") in COMMANDS:
        assert command_arguments(rest, OptionTable.for_command(magic.removeprefix("%")), lambda name: None, {})
    else:
        assert magic == "%slurm", line
        _parse_slurm(rest)


def _parse_slurm(rest: str) -> None:
    if rest.startswith("launch "):
        _, options = named_in(rest.removeprefix("launch "))
        parse_cell_line(options, OptionTable.for_command("sbatch"), LAUNCH_WORDS)
        return
    if rest.startswith("image "):
        _parse_image([token.text for token in tokenize(rest)][1:])
        return
    word, *more = [token.text for token in tokenize(rest)]
    assert word in USAGES
    if word == "usage":
        assert {one.partition("=")[0] for one in more} <= {"account", "start", "end", "by"}
    elif word in ("use", "disconnect"):
        assert len(more) == 1


def _parse_image(words: list[str]) -> None:
    act, *rest = words[1:] if words[0] in shipped_names() else words
    named = {"build": 2, "pull": 1, "remove": 1, "list": 0}[act]
    options = parse_cell_line(shlex.join(rest[named:]), OptionTable.for_command("sbatch"), IMAGE_WORDS)
    assert len(rest) >= named
    assert not options.rest


def test_every_cluster_that_ships_has_its_notebook_and_its_page() -> None:
    for name in shipped_names():
        assert (ROOT / "examples" / f"{name}.ipynb").is_file()
        assert f"(../../examples/{name}.ipynb)" in PAGES[name]
        assert f"$ jupyter slurm init {name} --user ana --yes\n" in PAGES[name]
        assert f"]({name}.md)" in PAGES["index"]
        assert "| In the guide | With jupyter_slurm |" in PAGES[name]
    assert len(OURS) > 80


def test_the_profile_of_a_sixth_cluster_is_one() -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGES["your-cluster"], re.MULTILINE | re.DOTALL)
    profile = parse_profile("sixth", text.encode(), "your-cluster.md")
    assert profile.known.keys() == {"partitions", "accounts", "qos", "gpus"}
    assert len(profile.notes) == 2


@pytest.mark.parametrize("name", shipped_names())
def test_the_profile_that_a_page_shows_extends_the_one_of_the_cluster(name: str) -> None:
    for text in re.findall(r"^```toml\n(.*?)^```", PAGES[name], re.MULTILINE | re.DOTALL):
        assert text.startswith(f'extends = "{name}"\n')
        assert parse_profile(name, text.encode(), f"{name}.md").user == "ana"


def test_nearly_each_line_of_the_guides_has_a_command_of_ours() -> None:
    """The others say in words why there is none; the command itself is parsed in the test below."""
    tables = [
        PAGES[name].partition("| In the guide | With jupyter_slurm |\n|---|---|\n")[2] for name in shipped_names()
    ]
    rows = [re.split(r"(?<!\\)\|", row)[1:-1] for table in tables for row in table.partition("\n\n")[0].splitlines()]
    assert all(len(row) == 2 for row in rows)
    answered = [row for row in rows if re.search(r"`(?:%|jupyter slurm )", row[1])]
    others = [row for row in rows if row not in answered]
    assert len(rows) >= 126
    assert len(answered) >= 121
    assert len(others) <= 5, others
    assert all(len(row[1].split()) > 5 for row in others), others


@pytest.mark.parametrize("line", OURS)
def test_a_command_of_the_page_is_one(line: str) -> None:
    parse(line)


@pytest.mark.parametrize("line", ["%%sbatch sweeep=a:1 as=x", "%slurm launhc", "jupyter slurm lanch"])
def test_what_is_none_would_be_noticed(line: str) -> None:
    with pytest.raises((SlurmError, AssertionError)):
        parse(line)
