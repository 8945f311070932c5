"""Each site on its replica: the profile that ships leads there, and what its guide asks for holds."""

from __future__ import annotations

from replicas import Replica


def test_a_cell_becomes_a_job_there(replica: Replica) -> None:
    gpus = ["--gpus 1"] if replica.site.cluster.tres != ["gres/gpu"] else []
    cell = replica.laptop.run(
        "\n".join([f"%%sbatch {' '.join(gpus)} as=first wait", "import os", "print(os.uname()[1])"])
    )
    assert not cell.error, cell.error
    assert replica.laptop.value("first.stdout").strip() in replica.nodes
