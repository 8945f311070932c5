"""Random headers against the real sbatch, whose arguments of getopt_long are recorded."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jupyter_slurm.domain.options.option_parser import HET
from jupyter_slurm.domain.scripts.script import header_options
from jupyter_slurm.errors import CellError

pytestmark = pytest.mark.slurm

PARTS = [
    "a",
    "é",
    "-n2",
    "--comment=",
    " ",
    "\t",
    '"',
    "'",
    "\\",
    "#",
    ":",
    '""',
    "\\#",
    "hetjob",
    "PackJob",
    "\v",
    "=",
]
LINE = st.lists(st.sampled_from(PARTS), max_size=8).map("".join)
START = st.sampled_from(["#SBATCH ", "#SBATCH\t", "#SBATCH", "#SLURM ", "##SBATCH ", " #SBATCH ", "#sbatch ", "# "])
LINES = st.lists(st.tuples(START, LINE).map("".join) | st.sampled_from(["", "  ", "#", "\t# x", "echo"]), max_size=4)


def test_headers_are_read_as_sbatch_reads_them(traced_sbatch: Any) -> None:
    """Check the first component's words. A word that is not an option stops sbatch before it contacts a controller."""
    seen = {"read": 0, "refused": 0}

    @settings(max_examples=300, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @example(["#SBATCH --comment='it\\'s' #x", "", "#SBATCH -n2"])
    @given(LINES)
    def compare(lines: list[str]) -> None:
        if traced_sbatch.version < (24, 5) and any("\\ " in line for line in lines):
            return  # older versions end the word at this point; the rest is another error
        # The last word stops every sbatch; it is in the first component unless a word began another.
        script = "\n".join(["#!/bin/sh", "#SBATCH -H", *lines, "#SBATCH stop-here", "true", ""])
        try:
            words = header_options(script)
        except CellError:
            words = None
        if words is None:
            runs = traced_sbatch.header(script)
            assert traced_sbatch.done.returncode != 0
            assert "job" in script.lower() or runs == []  # only the components before it were read
            seen["refused"] += 1
            return
        first = next(list(group) for is_end, group in groupby(words, HET.__eq__) if not is_end)
        if not any(not word.startswith("-") for word in first):
            return  # sbatch would continue with the next component, or with the controller
        assert traced_sbatch.header(script)[0] == first, script
        seen["read"] += 1

    compare()
    assert min(seen.values()) > 15, seen


def test_components(traced_sbatch: Any) -> None:
    """Check that ``hetjob`` begins a component, and that the rest of its line is lost."""
    script = "#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob -n2\n#SBATCH -n3 HETJOB -n4\n#SBATCH packjob\n#SBATCH stop-here\n"
    assert header_options(script) == ["-n1", HET, "-n3", HET, "stop-here"]
    runs = [words for words in traced_sbatch.header(script) if words]
    assert runs == [["-n1"], ["-n3"], ["stop-here"]]
