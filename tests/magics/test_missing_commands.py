"""Tests of scripts and cells whose shell lacks ``module`` or ``conda``."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("over SSH nothing is different")]


def test_the_way_out_of_a_missing_shell_function_is_named(kernel: Any) -> None:
    ran = kernel.ok("%%sbatch wait\n#!/bin/bash\nunset -f module\nmodule load gcc\necho done")
    card = kernel.text(ran.display)
    assert "COMPLETED" in card
    assert "has no `module`: only a login shell defines it. Write #!/bin/bash -l" in card
    failed = kernel.run("%%sbatch wait\n#!/bin/sh\nunset -f conda ml; PATH=/usr/bin:/bin\nml gcc; conda activate x")
    assert "has no `ml`: only a login shell defines it. Write #!/bin/bash -l" in failed.traceback
    assert "Load its module or environment in the job" not in failed.traceback
    ran = kernel.ok("%%sbatch wait\n!unset -f module; module load gcc\nprint('done')")
    assert "has no `module`, and what a `!` line loads would not reach Python" in kernel.text(ran.display)
    ran = kernel.ok("%%sbatch wait\n#!/bin/sh\necho module is found >&2")
    assert "login shell" not in kernel.text(ran.display)
