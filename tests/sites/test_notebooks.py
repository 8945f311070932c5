"""Tests of the notebook of each site, executed whole by a laptop with the site's replica: all cells and outputs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from replicas import Replica

from jupyter_slurm.sites.shipped import shipped_names
from jupyter_slurm.sites.toml_writer import toml_text

LOGIN_SHARE = 0.15
"""Share of one CPU of the login node, on average, during a notebook."""

EXAMPLES = Path(__file__).parents[2] / "examples"


def text_of(cell: Any) -> str:
    """Return the visible text under a cell."""
    parts = {
        "stream": lambda output: output.text,
        "error": lambda output: "\n".join(output.traceback),
        "execute_result": lambda output: output.data.get("text/plain", ""),
        "display_data": lambda output: output.data.get("text/plain", ""),
    }
    return "\n".join(parts[output.output_type](output) for output in cell.outputs)


class Told:
    """Outputs of an executed notebook."""

    def __init__(self, notebook: Any) -> None:
        self._cells = [(cell.source, text_of(cell)) for cell in notebook.cells if cell.cell_type == "code"]

    def under(self, part: str) -> str:
        """Return the outputs of the one cell with this text."""
        (text,) = [text for source, text in self._cells if part in source]
        return text


def of_sdumont(told: Told, replica: Replica) -> None:
    assert "nvidia_dev" in told.under("resources()")
    assert re.search(r"^sdumont300[12]$", told.under("%srun on=node"), re.MULTILINE)
    assert "nvidia_dev Python 3" in told.under("cores = len")
    assert re.search(r"^GPUs 0,1$", told.under("cores = len"), re.MULTILINE), "all of the node"
    assert "still here: True" in told.under("still here")
    assert re.search(r"y is about 3\.0\d x", told.under("train.wait()"))
    assert re.search(r"with gcc/7.4:python/3.9.1:cudnn/8.2_cuda-11.1$", told.under("as=evaluate"), re.MULTILINE)
    assert "accuracy 0.5 in /scratch/" in told.under('Path("experiments/logs/evaluate.txt")')
    assert re.search(rf"UA\n{replica.user} +nvidia_\w+ +\d", told.under("used.by")), "what the project pays"
    assert "Cluster/Account/User Utilization" in told.under("%sreport")
    assert "time limit" in told.under("--time 5:00:00")
    assert re.search(r"look +nvidia_dev +projeto", told.under("%sacct "))


def of_arandu(told: Told, replica: Replica) -> None:
    assert "a100" in told.under("resources()")
    assert re.search(r"on c4aiscw\d with GPU 0", told.under("%%remote"))
    assert re.search(r"sin\(x\) is about -?0\.\d+ \+ 0\.[89]\d+ x", told.under("json.loads"))
    assert "step 2000" in told.under("sine.wait()")
    assert "found in /output/" in told.under("json.loads"), "the disk of the node"
    assert "Hello world" in told.under("env=docker://lab/hello:1 wait")
    assert {"lab/hello:1", "nvcr.io/nvidia/pytorch:22.11-py3"} & {*told.under("image list").split()}
    assert re.search(r"http://127\.0\.0\.1:[89]\d{3}/", told.under("wait_ready"))
    assert "COMPLETED" in told.under("jupyter_slurm.jobs()")
    assert "COMPLETED" in told.under("sine.report()")
    assert not [name for docker in replica.dockers.values() for name in docker.containers()], "none is left"


def of_aau(told: Told, replica: Replica) -> None:
    assert "es.shj" in told.under("show assoc")
    assert "1gpulong" in told.under("show qos")
    assert re.search(r"on nv-ai-03\S* with GPU \d", told.under("%%remote"))
    assert "hello world from sbatch on node nv-ai-0" in told.under("as=hello")
    assert "--mem=64G" in told.under("as=little")
    assert "tensorflow_20.10-tf2-py3.sif" in told.under("image list")
    assert "accuracy 0.99 in" in told.under("train.stdout")
    assert "Hello world" in told.under("env=docker://lab/hello:1 wait")
    assert "MySlurmJob" in told.under("%sacct ")
    assert re.search(rf"^es\.shj +{replica.user} ", told.under('usage("es")'), re.MULTILINE), "of a group below it"
    assert "Cluster Utilization" in told.under("%sreport")


def of_skynet(told: Told, replica: Replica) -> None:
    assert {"a40", "2080_ti", "rtx_6000"} <= {*told.under("resources()").split()}
    assert re.search(r"\brtx_6000 +gerty", told.under("%sinfo"))
    assert re.search(r"on gerty with GPU \d", told.under("%%remote"))
    assert "advises at most 15" in told.under("as=greedy")
    assert re.search(r"^Debian GNU/Linux 12 .* with /dev/nvidia\d$", told.under("inside.wait()"), re.MULTILINE)
    shards = re.findall(
        r"^\[(\d)\] 250 of 1000 samples on (\w+) with GPU \d$", told.under("ranks.wait()"), re.MULTILINE
    )
    assert sorted(rank for rank, _ in shards) == ["0", "1", "2", "3"]
    assert {node for _, node in shards} == {"vicki", "gerty"}, "one is excluded"
    assert told.under("fit.table()").count("COMPLETED") == 4
    assert "all of them are ours" in told.under("owners.wait()")
    runs = re.findall(r"run (\d+)   epoch (\d+)", told.under("long.wait()"))
    assert [int(epoch) for _, epoch in runs] == list(range(1, 41)), "none is lost, and none comes twice"
    assert {run for run, _ in runs} == {"1", "2"}, "it was preempted, and resumed"
    assert "Checked" in told.under("%slurm who")
    assert replica.containers() == [], "none is left"


def of_unipi(told: Told, replica: Replica) -> None:
    assert re.search(r"on c0\d with \d+ CPUs", told.under("first.wait()"))
    assert "Debian GNU/Linux" in told.under("inside.wait()")
    assert "env=docker://antonio/base:1 runs in it" in told.under("image build")
    assert "it flies 10.0 m" in told.under("env=docker://antonio/base:1 wait")
    ran = re.findall(r"configuration (\d) in \S+/docker_repo with \.:/opt/cannon'", told.under("runs.wait()"))
    assert sorted(ran) == [*"12345678"]
    assert told.under("search.table()").count("COMPLETED") == 8
    assert re.search(r"^Ray on c0\d c0\d\n14 from c0\d", told.under("distributed.wait()"), re.MULTILINE)
    assert "rate" in told.under("best.parameters")


CHECKS: dict[str, Callable[[Told, Replica], None]] = {
    "sdumont": of_sdumont,
    "arandu": of_arandu,
    "aau-aicloud": of_aau,
    "skynet": of_skynet,
    "unipi": of_unipi,
}


@pytest.fixture
def person(replica: Replica, request: pytest.FixtureRequest) -> Replica:
    """Provide a site with the user's preparation of its notebook: in Pisa two environments in the profile."""
    if replica.name == "unipi":
        packages = request.getfixturevalue("ray_packages")
        (image,) = replica.site.software.images
        told = {"image": image, "bind": [str(packages)], "variables": {"PYTHONPATH": str(packages)}}
        base = {"image": image, "variables": {"PYTHONPATH": ".:/opt/cannon"}, "work_dir": "~/docker_repo"}
        laptop = replica.laptop
        laptop.profile.write_text(laptop.profile.read_text() + toml_text({"env": {"ray": told, "base": base}}))
        laptop.command("disconnect", replica.name, "--yes")
        assert laptop.connect().code == 0
    return replica


@pytest.mark.timeout(600)  # images are packed, on a busy machine
@pytest.mark.sites(*CHECKS)
@pytest.mark.by_day("sdumont")  # by day, the walks do the same on the other replicas
def test_the_notebook_of_a_site_does_what_its_guide_does(person: Replica, wait_for: Callable[..., Any]) -> None:
    """And spares the login node: it submits and copies, and computes nothing."""
    listed = ["squeue", "--noheader", "--format=%A"]  # a node with a remaining job of an earlier test is not used
    wait_for(lambda: not person.controller.run(*listed).stdout.split(), "nobody on the nodes")
    begun, before = time.monotonic(), person.login.cpu_seconds()
    told = Told(person.laptop.execute(EXAMPLES / f"{person.name}.ipynb"))
    share = (person.login.cpu_seconds() - before) / (time.monotonic() - begun)
    print(f"{share:.3f} of a CPU of the login node")
    CHECKS[person.name](told, person)
    assert share < LOGIN_SHARE


@pytest.mark.parametrize("name", shipped_names())
def test_a_notebook_is_kept_clean_and_does_nothing_that_the_guides_forbid(name: str) -> None:
    """Without outputs; no Slurm query in a loop, no GPU outside of Slurm, no work in a shell of the laptop."""
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    text = (EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert text == json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"
    assert max(len(line) for cell in notebook.cells for line in cell.source.splitlines()) <= 140
    for cell in code:
        assert not re.search(r"CUDA_VISIBLE_DEVICES['\"\]]*\s*=(?!=)|export CUDA_VISIBLE", cell.source)
        assert not re.search(r"watch |while .*\bs(queue|acct|info)\b|^!", cell.source, re.MULTILINE)
