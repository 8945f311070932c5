"""Random command lines against the real sbatch: equal refusals, equal options and script argv."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_slurm.domain.options.option_parser import Arity, OptionTable
from jupyter_slurm.errors import OptionError

pytestmark = pytest.mark.slurm

# These options end sbatch in the middle of its argv, so the rest is unknown.
ENDING = {"help", "usage", "version", "autocomplete"}

# sbatch stops at this header after it has read its whole argv and before it contacts a controller.
STOP = "#!/bin/sh\n#SBATCH stop-here\n"

ALL = OptionTable.for_command("sbatch")
LONG = sorted({name for spec in ALL.specs for name in spec.names} - ENDING | {"tunnel", "scratch-wipe", "maybe-warm"})
LETTERS = sorted(spec.short for spec in ALL.specs if spec.short and spec.name not in ENDING)
VALUES = st.sampled_from(["1", "x", "a b", "", "-n2", "--", "-", "a=b", "é", "'", "$HOME"])


@st.composite
def long_option(draw: st.DrawFn) -> list[str]:
    name = draw(st.sampled_from(LONG))
    if draw(st.integers(0, 3)) == 0:
        name = name[: draw(st.integers(1, len(name)))]
    if draw(st.integers(0, 9)) == 0:
        name = draw(st.sampled_from([name + "s", name.replace("-", "_"), name.upper(), "", "no-such"]))
    form = draw(st.sampled_from(["alone", "attached", "separate", "separate"]))
    value = draw(VALUES)
    return {"alone": [f"--{name}"], "attached": [f"--{name}={value}"], "separate": [f"--{name}", value]}[form]


@st.composite
def letters(draw: st.DrawFn) -> list[str]:
    bundle = draw(st.lists(st.sampled_from([*LETTERS, "H", "O", "s", "Q", "z"]), min_size=1, max_size=3))
    word = "-" + "".join(bundle) + draw(st.sampled_from(["", "", "4", "=x"]))
    return [word, *draw(st.lists(VALUES, max_size=1))]


WORDS = st.sampled_from([["--"], ["-"], ["./script"], ["plain"]])
ARGV = st.lists(st.one_of(long_option(), long_option(), letters(), WORDS), max_size=5).map(
    lambda parts: [word for part in parts for word in part]
)


@pytest.fixture(scope="module")
def table(traced_sbatch: Any) -> OptionTable:
    return OptionTable.for_command("sbatch", traced_sbatch.version).with_help(traced_sbatch.help())


@pytest.mark.parametrize("lines", [250, pytest.param(1500, marks=pytest.mark.nightly)])
def test_random_command_lines(traced_sbatch: Any, table: OptionTable, lines: int) -> None:
    """Check that refusals equal getopt's, and that options, values and operands equal those of sbatch."""
    script = traced_sbatch.folder / "stop"
    script.write_text(STOP)
    seen = {"accepted": 0, "refused": 0}

    @settings(
        max_examples=lines, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(ARGV, st.lists(VALUES, max_size=2))
    def compare(options: list[str], args: list[str]) -> None:
        argv = [*options, str(script), *args]
        real = traced_sbatch.command_line(*argv)
        try:
            ours = table.split(argv)
        except OptionError:
            ours = None
        if ours is None:
            assert real.rest is None, argv
            seen["refused"] += real.refused
            return
        assert not real.refused, (argv, real)
        names = [(option.name, option.value) for option in ours.options]
        canonical = [(_canonical(table, name), value) for name, value in real.taken]
        assert names[: len(canonical)] == canonical, argv
        if real.rest is None:  # stopped by a value or an ending option: no more to compare
            return
        assert len(names) == len(canonical), argv
        assert ours.rest == real.rest, argv
        seen["accepted"] += 1

    compare()
    assert min(seen.values()) > lines // 20, seen


def _canonical(table: OptionTable, name: str) -> str:
    return next((spec.name for spec in table.specs if name in (*spec.names, spec.short)), name)


def test_plugin_options_are_learned_from_the_help(traced_sbatch: Any, table: OptionTable) -> None:
    known = OptionTable.for_command("sbatch", traced_sbatch.version)
    added = {spec.name: spec for spec in table.specs}
    for spec in known.specs:
        added.pop(spec.name)
    assert {name: spec.arity for name, spec in added.items()} == {
        "tunnel": Arity.REQUIRED,
        "scratch-wipe": Arity.NONE,
        "maybe-warm": Arity.OPTIONAL,
    }
    assert added["tunnel"].help == "Forward a port to the job, which takes a long help text that has to be wrapped"


@pytest.mark.parametrize(
    "argv", [["--tunnel", "8000"], ["--tun=8000"], ["--scratch-wipe"], ["--maybe-warm"], ["--maybe-warm=3", "-n2"]]
)
def test_plugin_options_are_taken(traced_sbatch: Any, table: OptionTable, argv: list[str]) -> None:
    script = traced_sbatch.folder / "stop"
    script.write_text(STOP)
    real = traced_sbatch.command_line(*argv, str(script), "a")
    assert not real.refused
    assert table.split([*argv, str(script), "a"]).rest == real.rest == [str(script), "a"]


def test_components_of_a_het_job(traced_sbatch: Any, table: OptionTable) -> None:
    """Check that sbatch removes every colon before it reads options, also one among the script's arguments."""
    script = traced_sbatch.folder / "stop"
    script.write_text(STOP)
    argv = ["-n1", ":", "-n2", str(script), "a", ":", "b"]
    real = traced_sbatch.command_line(*argv)
    assert real.taken == [("ntasks", "1"), ("ntasks", "2")]
    assert real.rest == [str(script), "a", "b"]
    ours = table.split(argv)
    assert [(option.name, option.value) for option in ours.options] == [("ntasks", "1"), (":", None), ("ntasks", "2")]


ARGUMENTS = st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8), max_size=4)


@pytest.mark.parametrize("version", ["installed", pytest.param("26.05", marks=pytest.mark.slow)])
def test_the_job_gets_the_argv(
    version: str,
    cluster_for: Callable[[str], Any],
    cluster: Any,
    wait_for: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Check end to end that the running script gets the script argv of split()."""
    running = cluster if version == "installed" else cluster_for(version)
    tmp_path.chmod(0o755)
    script = tmp_path / "job.sh"
    script.write_text(
        '#!/bin/sh\nprintf "%s\\0" "$@" >"$SLURM_JOB_NAME.part" && mv "$SLURM_JOB_NAME.part" "$SLURM_JOB_NAME.out"\n'
    )
    table = OptionTable.for_command("sbatch", running.installation.version)
    lines = [
        ["-n", "1", "--job-name", "j0", "-o/dev/null", str(script), "-n4", "--", "a b", ""],
        ["-Osn1", "--job-n=j1", "--output", "/dev/null", "--", str(script), "--time=3", "'", '"$HOME"'],
        [
            "-k",
            "--nice",
            "--exclusive=user",
            "--tasks-per-node=1",
            "-Jj2",
            "-o",
            "/dev/null",
            str(script),
            "\n",
            "é",
            "*",
        ],
        ["--comment", "-n4", "--mem-per-c", "10", "-Jj3", "-o", "/dev/null", str(script), "#SBATCH"],
    ]
    for number, argv in enumerate(lines):
        split = table.split(argv)
        assert split.rest[0] == str(script)
        subprocess.run([running.installation.program("sbatch"), *argv], env=running.env(), cwd=tmp_path, check=True)
        output = tmp_path / f"j{number}.out"
        wait_for(output.exists, f"job {argv} has run")
        got = output.read_bytes().decode().split("\0")[:-1]
        assert got == split.rest[1:]
