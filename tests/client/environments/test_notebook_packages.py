"""Tests of the packages that a notebook imports."""

from __future__ import annotations

import pytest

from jupyter_slurm.client.environments.notebook_packages import imported_modules, notebook_packages
from jupyter_slurm.errors import UsageError


def test_imports_are_found_in_all_kinds_of_cells() -> None:
    cells = [
        "import os, numpy.linalg as la\n!pip list\n%matplotlib inline",
        "%%sbatch --gpus 1 env=auto\nfrom torch.nn import Linear\ndef f():\n    import pandas",
        "%%sbatch\n#!/bin/bash\nimport nothing",
        "%%bash\nimport magick",
        "\n \n%%sbatch env=auto\nimport jax",
        "%%time\n%%sbatch env=auto\nimport scipy",
        "%%sbatch env=auto\n\n%%time\nimport flax",
        "# Training\n\n%%sbatch env=auto\nimport sklearn",
        "%%time\n%%bash\nimport magick",
        "from . import sibling",
        "syntax error(",
    ]
    assert imported_modules(cells) == {"numpy", "torch", "pandas", "jax", "scipy", "flax", "sklearn"}


def test_a_process_without_a_notebook_has_no_imports() -> None:
    with pytest.raises(UsageError, match="in its cells only"):
        notebook_packages()
