"""Tests of Python cells that run once for each task of their job."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko"), pytest.mark.by_day()]

WaitFor = Callable[..., Any]

GRID = "-p devwork -N 2 --ntasks-per-node 2 --mem-per-cpu 100M"
PLAIN = "python=/usr/bin/python3"  # starts faster, without IPython


def test_each_task_is_a_rank_with_its_variables_values_and_label(kernel: Any) -> None:
    kernel.ok("rate = 0.5")
    ran = kernel.ok(
        f"%%sbatch {GRID} launcher=srun wait in=rate out=total as=grid {PLAIN} -- 'an argument'\n"
        "import json, os, socket, sys\n"
        "names = ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT', 'SLURMD_NODENAME')\n"
        "print(json.dumps({name: os.environ[name] for name in names}), sys.argv[1])\n"
        "rank = int(os.environ['RANK'])\n"
        "total = rate + rank\n"
        "with socket.socket() as way:\n"  # ranks connect to each other, as torch.distributed does
        "    there = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
        "    if rank == 0:\n"
        "        way.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); way.bind(('', there[1])); way.listen()\n"
        "        for _ in range(3): way.accept()[0].close()\n"
        "    else:\n"
        "        import time\n"
        "        while way.connect_ex(there): way.close(); time.sleep(0.1); way = socket.socket()\n"
    )
    lines = sorted(kernel.value("grid.stdout").splitlines())
    found = [json.loads(re.sub(r"^\[\d\] | an argument$", "", line)) for line in lines]
    assert [line[:4] for line in lines] == ["[0] ", "[1] ", "[2] ", "[3] "]
    assert all(line.endswith(" an argument") for line in lines)
    assert [(one["RANK"], one["LOCAL_RANK"]) for one in found] == [("0", "0"), ("1", "1"), ("2", "0"), ("3", "1")]
    assert {(one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"]) for one in found} == {("4", "2")}
    assert len({one["MASTER_PORT"] for one in found}) == len({one["MASTER_ADDR"] for one in found}) == 1
    assert found[0]["SLURMD_NODENAME"] == found[1]["SLURMD_NODENAME"] != found[2]["SLURMD_NODENAME"]
    assert kernel.value("total") == "0.5"  # of rank 0
    assert "COMPLETED" in kernel.text(ran.display)


@pytest.mark.here_only("what runs in the job is the same over SSH")
def test_the_ranks_meet_on_the_node_of_rank_0_and_the_job_keeps_its_name(kernel: Any, tmp_path: Path) -> None:
    """A list of hosts places the first task on another node than the first of the job."""
    (tmp_path / "hosts").write_text("c4aiscw2\nc4aiscw1\n")
    kernel.ok(f"import os; os.environ['SLURM_HOSTFILE'] = {str(tmp_path / 'hosts')!r}")
    try:
        kernel.ok(
            f"%%sbatch -p devwork -N 2 -n 2 -m arbitrary --mem-per-cpu 100M -J mine launcher=srun wait as=placed {PLAIN}\n"
            "import os; print(*map(os.environ.get, ('MASTER_ADDR', 'SLURMD_NODENAME', 'SLURM_JOB_NAME')))"
        )
    finally:
        kernel.ok("del os.environ['SLURM_HOSTFILE']")
    lines = sorted(kernel.value("placed.stdout").splitlines())
    assert lines == ["[0] c4aiscw2 c4aiscw2 mine", "[1] c4aiscw2 c4aiscw1 mine"]
    assert sorted(kernel.value("placed.node_names").strip("[]").replace("'", "").split(", ")) == [
        "c4aiscw1",
        "c4aiscw2",
    ]


def test_a_rank_that_fails_ends_the_others_and_is_named(kernel: Any) -> None:
    ran = kernel.run(
        f"%%sbatch {GRID} launcher=srun wait as=bad {PLAIN}\n"
        "import os, time\nrank = int(os.environ['RANK'])\nprint('begin')\n"
        "if rank == 2:\n    raise ValueError('of rank 2')\n"
        "time.sleep(600)\n"
    )
    assert ran.error == "JobFailed"
    assert "FAILED" in ran.traceback
    assert re.search(r"Rank 2 on c4aiscw\d failed first \(exit code 1\); 3 were ended with it\.", ran.traceback)
    assert "[2] ValueError: of rank 2" in ran.traceback
    assert "STEP" not in ran.traceback  # messages of srun about the other ranks are redundant
    assert kernel.value("bad.exit_code") == "1"
    assert sorted(kernel.value("bad.stdout").splitlines()) == [f"[{rank}] begin" for rank in range(4)]


@pytest.mark.here_only("what runs in the job is the same over SSH")
def test_a_signal_reaches_the_cell_and_its_last_words_are_heard(kernel: Any, wait_for: WaitFor) -> None:
    kernel.ok(
        f"%%sbatch -p devwork -n 2 --mem-per-cpu 100M launcher=srun as=stopped {PLAIN}\n"
        "import os, time\nprint('begun ' * 3)\n"
        "try:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    print('last words', end='')\n    os._exit(9)\n"
    )
    wait_for(lambda: kernel.value("stopped.stdout").count("begun begun begun") >= 2, "both ranks")
    kernel.ok("stopped.cancel('INT')")
    assert kernel.run("stopped.wait()").error == "JobFailed"
    assert kernel.value("(stopped.exit_code, stopped.data['ranks']['also'])") == "(9, 1)"
    assert kernel.value("stopped.stdout").count("last words") >= 2


@pytest.mark.here_only("nothing is submitted")
def test_words_that_mean_nothing_are_refused_and_several_tasks_are_hinted_at_once(kernel: Any) -> None:
    hint = "This cell runs once, on the first node. Add launcher=srun to run it in each task"
    assert hint not in kernel.ok("%%sbatch -n 1 show\n1").stderr
    assert hint not in kernel.ok("%%sbatch -n 2 show\n#!/bin/sh\n").stderr
    assert hint not in kernel.ok("%%sbatch -n 2 launcher=mpi show\n1").stderr
    assert hint not in kernel.ok("%%sbatch -n 2 : -n 2 show\n1").stderr
    assert hint in kernel.ok("%%sbatch show\n#SBATCH -N 2\n1").stderr
    assert hint not in kernel.ok("%%sbatch -n 4 show\n1").stderr
    assert "Did you mean launcher=srun?" in kernel.run("%%sbatch -n 2 launcher=srum\n1").traceback
    refused = kernel.run("%%sbatch -n 2 launcher=srun\n#!/bin/sh\n").traceback
    assert "launcher= applies to Python cells, and this cell is a script." in refused
    assert "Call srun or torchrun in the script." in refused


@pytest.mark.here_only("what runs in the job is the same over SSH")
def test_figures_and_progress_bars_of_all_ranks(kernel: Any, gate: Callable[[str], Path], wait_for: WaitFor) -> None:
    go = gate("go")
    cell = (
        "import os, pathlib, sys, time\nfrom IPython.display import HTML, display\nrank = int(os.environ['RANK'])\n"
        "for step in range(20):\n    sys.stderr.write(f'\\r{step + 1}/20'); time.sleep(0.01)\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)\n"
        "from IPython.display import clear_output\n"
        "if rank == 1: display(HTML('<i>gone</i>')); clear_output()\n"
        "shown = display(HTML(f'<i>first of {rank}</i>'), display_id='same')\n"
        "shown.update(HTML(f'<i>figure of {rank}</i>'))\n"
        "print('done', end='')\n"
    )
    request = kernel.begin(f"%%sbatch -p devwork -n 3 --mem-per-cpu 100M launcher=srun as=bars\n{cell}")
    shown = kernel.end(request).display
    wait_for(lambda: kernel.html(shown).count("20/20") >= 3, "the bars of all ranks, before their lines have an end")
    go.touch()
    kernel.ok("bars.wait()")
    assert kernel.value("bars.stderr.count(chr(10))") == "3"  # one line for each rank
    assert sorted(kernel.value("bars.tail(3)").splitlines()) == ["[0] done", "[1] done", "[2] done"]
    outputs = [bundle.get("text/html", "") for bundle in kernel.outputs(request)]
    assert sorted(html for html in outputs if "figure" in html) == [f"<i>figure of {rank}</i>" for rank in range(3)]
    assert not any("gone" in html for html in outputs)
    folded = kernel.html(shown).partition("<details>")  # text before the first figure
    assert "[0] 20/20" in folded[0]
    assert "[1] 20/20" in folded[2]
    for rank in range(3):
        assert outputs.index(f"<b>rank {rank}</b>") + 1 == outputs.index(f"<i>figure of {rank}</i>")


@pytest.mark.here_only("what runs in the job is the same over SSH")
@pytest.mark.parametrize("nodes", [1, 2])
def test_mpi_has_the_ranks_of_slurm(kernel: Any, unavailable: Callable[[str], None], nodes: int) -> None:
    """Shared memory is switched off, because all nodes of the embedded Slurm have that of this computer."""
    if not Path("/usr/lib/python3/dist-packages/mpi4py").exists():
        unavailable("Debian's mpi4py is not installed")
    kernel.ok(
        f"%%sbatch -p devwork -N {nodes} -n 3 --mem-per-cpu 200M launcher=mpi wait as=mpi python=/usr/bin/python3 "
        "--export=ALL,OMPI_MCA_btl=^vader\n"
        "import os\nfrom mpi4py import MPI\nworld = MPI.COMM_WORLD\n"
        "assert world.Get_rank() == int(os.environ['RANK'])\n"
        "print(world.allreduce(world.Get_rank()), 'of', world.Get_size())\n"
        "assert len(set(world.allgather(os.environ['SLURM_NODEID']))) == int(os.environ['SLURM_NNODES'])\n"
    )
    assert sorted(kernel.value("mpi.stdout").splitlines()) == [f"[{rank}] 3 of 3" for rank in range(3)]
    assert kernel.value("mpi.nodes").startswith("c4aiscw" if nodes == 1 else "c4aiscw[")


def exported(variables: dict[str, str]) -> str:
    """Return the shell lines that add PyTorch to a job, and the Python that has it."""
    return "--export=ALL," + ",".join(f"{name}={value}" for name, value in variables.items()) + f" {PLAIN}"


@pytest.mark.here_only("what runs in the job is the same over SSH")
def test_whole_nodes_are_had_with_all_their_gpus_in_steps_too(kernel: Any) -> None:
    """Slurm itself allows them only to the batch script."""
    cell = "import os\nprint(len(os.environ['CUDA_VISIBLE_DEVICES'].split(',')))\n"
    kernel.ok(f"%%sbatch -p arandu -n 2 --exclusive launcher=srun as=whole wait {PLAIN}\n{cell}")
    assert sorted(kernel.value("whole.stdout").splitlines()) == ["[0] 8", "[1] 8"]
    kernel.ok("%salloc -p arandu --exclusive as=node wait")
    kernel.ok(f"%%srun on=node as=step {PLAIN}\n{cell}")
    assert kernel.value("step.wait().stdout") == "8\n"
    kernel.ok(f"%%srun on=node --gpus 2 as=step {PLAIN}\n{cell}")
    assert kernel.value("step.wait().stdout") == "2\n"
    kernel.ok("node.cancel()")


SMI = """#!/bin/sh
[ "$*" = "--query-gpu=index,uuid --format=csv,noheader" ] && printf '0, GPU-a\\n1, GPU-b\\n'
"""


@pytest.mark.here_only("what a node does is the same")
def test_gpus_that_slurm_does_not_count_are_a_containers_if_the_node_is_the_jobs(kernel: Any, tmp_path: Path) -> None:
    """As on a site without GRES: a job has no such variables."""
    tmp_path.chmod(0o755)
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    path = resources.files("jupyter_slurm.runner.container") / "run.py"
    look = f"print(runpy.run_path('{path}')['facts']({{'gpus': 'node'}}).gpus)\n"
    begin = f"import os, runpy\nos.environ['PATH'] = '{tmp_path}:' + os.environ['PATH']\n"
    forget = "for name in [name for name in os.environ if 'GPU' in name or 'CUDA' in name]: del os.environ[name]\n"
    kernel.ok(f"%%sbatch -p devwork --exclusive as=whole {PLAIN}\n{begin}{look}{forget}{look}")
    kernel.ok(f"%%sbatch -p devwork as=shared {PLAIN}\n{begin}{forget}{look}")
    assert kernel.value("whole.wait().stdout") == "['GPU-a']\n['GPU-a', 'GPU-b']\n"
    assert kernel.value("shared.wait().stdout") == "[]\n"


TRAIN = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(0)
dist.init_process_group("gloo")
rank, model = dist.get_rank(), torch.nn.Linear(1, 1)
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.tensor([[float(rank)]])
for step in range(100):
    optimizer.zero_grad()
    loss = ((model(x) - 3 * x - 1) ** 2).mean()
    loss.backward()
    optimizer.step()
learned = [round(value.item(), 1) for value in model.parameters()]
print(dist.get_world_size(), os.environ["SLURMD_NODENAME"], *learned)
dist.destroy_process_group()
"""


@pytest.mark.here_only("what runs in the job is the same over SSH")
def test_pytorch_trains_on_two_nodes_with_a_task_each(kernel: Any, torch_variables: dict[str, str]) -> None:
    """Each rank has one of two points and learns the line through both: the gradients are combined."""
    line = f"%%sbatch -p devwork -N 2 --ntasks-per-node 1 --mem 1G {exported(torch_variables)}"
    kernel.ok(f"{line} launcher=srun wait as=trained out=learned\n{TRAIN}")
    lines = sorted(kernel.value("trained.stdout").splitlines())
    nodes = [line.split()[2] for line in lines]  # others may have one of the first nodes
    assert nodes == sorted(set(nodes))
    assert lines == [f"[{rank}] 2 {nodes[rank]} 3.0 1.0" for rank in range(2)]
    assert kernel.value("learned") == "[3.0, 1.0]"


@pytest.mark.here_only("what runs in the job is the same over SSH")
def test_torchrun_has_a_process_for_each_gpu_of_each_node(kernel: Any, torch_variables: dict[str, str]) -> None:
    found = f"launcher=torchrun {exported(torch_variables)}"
    names = "('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'CUDA_VISIBLE_DEVICES')"
    cell = f"import os\nprint(*(os.environ.get(name, '-') for name in {names}))\n"
    kernel.ok(f"%%sbatch -p arandu -n 3 --gpus-per-task 1 --mem-per-cpu 500M as=gpus {found}\n{cell}")
    kernel.ok(f"%%sbatch -p devwork -N 2 --ntasks-per-node 2 --mem-per-cpu 500M as=tasks {found}\n{cell}")
    missing = kernel.run(f"%%sbatch {GRID} launcher=torchrun wait python=/usr/bin/python3\nprint(1)\n")
    assert missing.error == "JobFailed"
    assert re.search("/usr/bin/python3 on .* has no torch, .* Choose another Python with env=NAME", missing.traceback)
    assert "exit code 1" in missing.traceback
    # All GPUs of the node, of which LOCAL_RANK names one.
    lines = sorted(kernel.value("gpus.wait().stdout").splitlines())
    assert [re.sub(r"\d,\d,\d$", "three", line) for line in lines] == [f"[{r}] {r} 3 {r} three" for r in range(3)]
    lines = sorted(kernel.value("tasks.wait().stdout").splitlines())
    assert lines == [f"[{rank}] {rank} 4 {rank % 2} -" for rank in range(4)]
