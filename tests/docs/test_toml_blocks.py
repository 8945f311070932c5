"""TOML of the documentation: a site profile, a description of an embedded cluster, or marked as something else."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_slurm.embedded.description import parse_description
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.sites.profile import parse_profile

ROOT = Path(__file__).parents[2]
PAGES = [
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts),
    ROOT / "README.md",
]
DESCRIPTION, OTHER = "# embedded description", "# other"


def find_blocks(text: str) -> Iterator[str]:
    """Yield the text of each block."""
    yield from re.findall(r"^ *```toml\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)


def check_block(text: str) -> None:
    """Read a block as what it is said to be; its commented lines with a key are read as well."""
    if text.startswith(OTHER):
        tomllib.loads(text)
        return
    for variant in (text, re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE)):
        if text.startswith(DESCRIPTION):
            parse_description(tomllib.loads(variant))
        else:
            parse_profile("mycluster", variant.encode(), "block")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_toml_of_a_page_is_valid(page: Path) -> None:
    faults = []
    for block in find_blocks(page.read_text("utf-8")):
        try:
            check_block(block)
        except (SlurmError, tomllib.TOMLDecodeError) as error:
            faults.append(f"{block.splitlines()[0]} …: {error}")
    assert not faults, "\n".join(faults)


def test_wrong_toml_is_noticed() -> None:
    wrong = [
        '[login]\nhots = "a"\n',
        '[login]\nhost = "a"\n# max_age = "long"\n',
        "# embedded description\nnodes = 1\n",
    ]
    for block in wrong:
        with pytest.raises(SlurmError):
            check_block(block)
