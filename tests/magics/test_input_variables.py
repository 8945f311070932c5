"""Tests of refusals that come from variables of the environment, against the real commands."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_slurm.embedded.machine.packages import find_program
from jupyter_slurm.runner.allocation.input_variables import blamed_variables

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("over SSH the variables of a cell stay on this computer")]

_HARMLESS = {"SBATCH_DEBUG", "SBATCH_WAIT", "SLURM_EXIT_ERROR"}
_VALUES = ("no/such", "true")


def _variables(command: str) -> list[str]:
    """Return the input variables that are in the program itself."""
    program = find_program(command)
    if program is None:
        return []
    with open(program, "rb") as file:
        found = re.findall(rb"(?<![A-Z_])(?:SBATCH|SRUN|SLURM)_[A-Z][A-Z_0-9]+(?=\0)", file.read())
    names = {name.decode() for name in found} - _HARMLESS
    return sorted(name for name in names if name.startswith("SBATCH_") or name == "SLURM_HINT")


def test_a_refusal_by_sbatch_names_its_variable(cluster: Any) -> None:
    refused = set()
    for name in _variables("sbatch"):
        for value in _VALUES:
            env = {**os.environ, **cluster.env(), name: value}
            argv = ["sbatch", "--test-only", "--wrap=true"]
            done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
            if done.returncode and done.stderr:  # from 24.11 on, SBATCH_POWER ends sbatch without a word
                refused.add(name)
                blamed = blamed_variables("sbatch", done.stderr, {**env, "SBATCH_COMMENT": "not this one"})
                assert f"{name}={value}" in blamed, done.stderr
                assert not blamed_variables("sbatch", done.stderr, {name: ""})
    assert {"SBATCH_EXCLUSIVE", "SBATCH_NO_KILL", "SBATCH_PARTITION", "SBATCH_TIMELIMIT", "SLURM_HINT"} <= refused


@pytest.fixture
def variable(kernel: Any) -> Iterator[Any]:
    """Return a function that sets a variable of the kernel until the end of the test."""
    names: list[str] = []

    def change(name: str, value: str) -> None:
        names.append(name)
        kernel.ok(f"import os; os.environ[{name!r}] = {value!r}")

    yield change
    kernel.ok("".join(f"os.environ.pop({name!r}, None)\n" for name in names))


def test_the_variable_of_a_refused_job_is_named(kernel: Any, variable: Any) -> None:
    variable("SBATCH_EXCLUSIVE", "true")
    refused = kernel.run("%%sbatch\n#!/bin/sh\ntrue")
    assert refused.error == "SubmitRefused"
    assert "(SBATCH_EXCLUSIVE=true of the environment)" in refused.traceback
    assert "del os.environ['SBATCH_EXCLUSIVE']" in refused.traceback
    variable("SBATCH_EXCLUSIVE", "user")
    variable("SBATCH_PARTITION", "nowhere")
    refused = kernel.run("%%sbatch --exclusive\n#!/bin/sh\ntrue")
    assert "SBATCH_PARTITION=nowhere" in refused.traceback
    refused = kernel.run("%%sbatch -p nowhere2\n#!/bin/sh\ntrue")
    assert "SBATCH_PARTITION" not in refused.traceback


def test_the_variable_of_a_refused_step_is_named(kernel: Any, variable: Any) -> None:
    kernel.ok("%salloc --time 10 as=g")
    variable("SLURM_DISTRIBUTION", "bogus")
    kernel.ok("%srun as=s hostname")
    failed = kernel.run("s.wait()")
    assert "Slurm did not start the step" in failed.traceback
    assert "SLURM_DISTRIBUTION=bogus of the environment" in failed.traceback
    failed = kernel.run("%%remote\n1")
    assert "SLURM_DISTRIBUTION=bogus of the environment" in failed.traceback
    kernel.ok("g.cancel()")


def test_a_variable_that_came_with_the_allocation_is_named(kernel: Any, variable: Any) -> None:
    variable("SLURM_EXCLUSIVE", "no/such")  # srun reads it, sbatch does not
    kernel.ok("%salloc as=held wait")
    try:
        for cell in ("%%srun on=held wait\n#!/bin/sh\ntrue", "%%remote on=held\n1"):
            assert "SLURM_EXCLUSIVE=no/such" in kernel.run(cell).traceback
    finally:
        kernel.ok("held.release()")
