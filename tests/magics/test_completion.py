"""Tests of completion, requested from the kernel as by a front end."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.magics.sbatch import CELL_KEYWORDS

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko"), pytest.mark.by_day()]


@pytest.fixture(scope="module")
def offered(kernel: Any) -> Callable[[str], list[str]]:
    """Return ``offered(code)``: the completions of the kernel at the end of the code's first line."""
    return lambda code: list(kernel.complete(code)[0])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%%sbatch --par", ["--parsable", "--partition"]),
        ("%%sbatch -n4 as=job --gpus-per-n\n#!/bin/sh\n", ["--gpus-per-node"]),
        ("%%sbatch ", [f"{word}=" if takes_value else word for word, takes_value in CELL_KEYWORDS.items()]),
        ("%%sbatch wait -n1 s", ["show", "stage=", "sweep=", "sync="]),
        ("%slurm kernel s", ["switch"]),
        ("%slurm kernel switch x i", ["in="]),
        ("%sbatch wa", ["wait"]),
        ("%squeue --sta", ["--start", "--states"]),
        ("%sinfo -N --part", ["--partition"]),
    ],
)
def test_options_and_words_are_offered(offered: Callable[[str], list[str]], line: str, expected: list[str]) -> None:
    assert sorted(offered(line)) == sorted(expected)


@pytest.mark.parametrize("line", ["%%sbatch -n1 -- --par", "%%sbatch --no-such=", "%%sbatch -J wai", "%%sbatch 'a"])
def test_nothing_of_ours_where_others_know_better(offered: Callable[[str], list[str]], line: str) -> None:
    assert not {"--partition", "wait", "arandu"} & set(offered(line))


@pytest.fixture(scope="module")
def known(kernel: Any, wait_for: Callable[..., Any]) -> dict[str, str]:
    """Provide a kernel with names for completion: of the cluster, a job, variables. ``{held}`` is the job's number."""
    kernel.ok("%sinfo -h")  # completion never causes a login prompt
    kernel.ok("%%sbatch --hold as=held -J train\n#!/bin/sh\ntrue")
    kernel.ok(
        "import math\nrates = [{'lr': 1}, {'lr': 2}]\nweights, pair = {'lr': [1]}, [held]\n"
        "def rescale(x):\n    return x"
    )
    number = kernel.value("held.id")
    for kind in ("-p ", "-w ", "-C ", "--gres ", "-G ", f"-d afterok:{number[:-1]}"):
        wait_for(lambda kind=kind: kernel.complete(f"%%sbatch {kind}")[0], f"names for {kind}")
    wait_for(lambda: "expected start" in kernel.complete("%squeue --start")[1][0], "the help of squeue")
    return {"held": number}


PLACES = [
    ("%%sbatch -p ", ["arandu", "devwork"]),
    ("job = %sbatch --partition=ar", ["arandu"]),
    ("%salloc --hold --partition devwork,a", ["arandu"]),
    ("%squeue -hp d", ["devwork"]),
    ("%sinfo -n dgx", ["dgx01"]),
    ("%%sbatch -w c4aiscw1,dg", ["dgx01"]),
    ("%%sbatch -C 'dgx&a", ["a100"]),
    ("%%sbatch --constraint=(dgx|work", ["workstation"]),
    ("%%sbatch --gres gpu:a100:", [f"gpu:a100:{n}" for n in range(1, 9)]),
    ("%%sbatch --gres g", ["gpu", "gpu:1", "gpu:a100"]),
    ("%%sbatch -p devwork --gres g", ["gpu", "gpu:1"]),
    ("%%sbatch -p devwork --gres=gpu:a", []),
    ("%%sbatch -pdevwork,arandu --gres gpu:a", ["gpu:a100"]),
    ("%%sbatch -p devwork --gpus-per-node=", ["1"]),
    ("%salloc --partition=arandu --gpus-per-node ", ["a100", *(f"a100:{n}" for n in range(1, 9))]),
    ("%%sbatch -p arndu --gpus-per-task=a", ["a100", *(f"a100:{n}" for n in range(1, 9))]),
    ("%%sbatch -p devwork -G a", []),
    ("%salloc --gpus-per-node a", ["a100", *(f"a100:{n}" for n in range(1, 9))]),
    ("%%sbatch -p arandu --time=1", ["1:00:00", "12:00:00", "1-00:00:00"]),
    ("%salloc -t 0", ["0:10:00"]),
    ("%%sbatch -p arandu --mem=", ["2T", "0"]),
    ("%%srun -p arandu,devwork --mem ", ["64G", "2T", "0"]),
    ("%%sbatch --mem=9", []),
    ("%%sbatch --mem-per-cpu=", []),
    ("%%sbatch -n ", []),
    ("%%sbatch -J resc", []),
    ("%%sbatch --no-such=resc", []),
    ("%squeue --format resc", []),
    ("%%sbatch -d after", ["after:", "afterany:", "aftercorr:", "afternotok:", "afterok:"]),
    ("%%sbatch -d afterok:1?afterany:{held}", ["{held}"]),
    ("%scancel {held}", ["{held}"]),
    ("%sacct -j {held}", ["{held}"]),
    ("%scontrol show jo", ["job"]),
    ("%scontrol show job {held}", ["{held}"]),
    ("%scontrol -o update PartitionName=dev", ["devwork"]),
    ("%sacctmgr show qo", ["qos"]),
    ("%squeue -t PEN", ["PENDING"]),
    ("%%sbatch --open-mode ap", ["append"]),
    ("%slurm us", ["use", "usage"]),
    ("%slurm use loc", ["local"]),
    ("%slurm image bu", ["build"]),
    ("%slurm image build a:1 environment repl", ["replace"]),
    ("%slurm image pull a:1 runtime=sing", ["singularity"]),
    ("%slurm image pull a:1 -p dev", ["devwork"]),
    ("%%sbatch in=held,resc", ["rescale"]),
    ("%sbatch after=hel", ["held"]),
    ("%sbatch after=he,pa", ["pair"]),
    ("%sbatch after=held,he", []),
    ("%%sbatch after={held}", ["{held}"]),
    ("%%sbatch sweep=", ["rates", "weights"]),
    ("%srun on=", []),
    ("%%sbatch env=", ["auto"]),
    ("%slurm env create mine where=", ["job", "login"]),
    ("%slurm copy a b wh", ["where="]),
    ("%slurm copy a b where=", ["job", "login"]),
    ("%slurm copy a b --part", ["--partition"]),
    ("%%sbatch out=", []),
    ("%%sbatch --qos=", []),
    ("%salloc release on=no", []),
    ("%%sbatch launcher=", ["srun", "torchrun", "mpi", "ray"]),
    ("%%remote in=held,resc", ["rescale"]),
    ("%remote re", ["restart"]),
    ("%%sbatch out=lo\nloss = 1\nfor row in []: lowest = [long for long in row]", ["loss", "lowest"]),
]


def test_names_of_the_cluster_and_of_the_notebook_are_offered(
    known: dict[str, str], offered: Callable[[str], list[str]]
) -> None:
    wrong = {}
    for line, expected in PLACES:
        wanted = [text.format(**known) for text in expected]
        found = offered(line.replace("{held}", known["held"]))
        found = [text for text in found if not text.startswith("~/")]  # environments in the tester's home
        if found != wanted:
            wrong[line] = found
    assert not wrong


def test_what_is_offered_says_what_it_is(known: dict[str, str], kernel: Any) -> None:
    def said(line: str) -> list[str]:
        return list(kernel.complete(line)[1])

    assert said("%%sbatch --time=1-") == ["24 h"]
    assert said("%%sbatch -p devwork --mem=6") == ["all of 4 nodes"]
    assert "rates" in kernel.complete("%%sbatch --comment={rat")[0], "a value of Python may be meant"
    assert said("%%sbatch -p dev") == ["default, 4 nodes, 1 GPU a node, no time limit"]
    assert said(f"%scancel {known['held']}") == ["held, PENDING"]
    assert said("%%sbatch --gpus-per-n") == ["number of GPUs required per allocated node"]
    assert said("%%sbatch aftercor") == ["start each task when the same task of this array has succeeded"]
    assert said("%srun wa") == ["wait until the step has finished; raise an error if it failed"]
    assert said("%%sbatch --open-mode ap") == ["word"]
    assert said("%%sbatch sho") == ["print the command line and the script; submit nothing"]
    assert said("%%sbatch after=hel") == [f"Job {known['held']} (held)"]
    assert said("%slurm use loc") == ["this computer"]
    assert said("%slurm image build a:1 environment repl") == ["replace an existing image of this name"]
    assert said("%%remote now") == ["do not wait: the output appears below the cell while other cells run"]


def test_a_key_press_asks_slurm_nothing(
    known: dict[str, str], offered: Callable[[str], list[str]], cluster: EmbeddedCluster
) -> None:
    """Counted by the controller: no source of the names was queried again."""

    def asked() -> dict[str, int]:
        counts = dict(re.findall(r"^\s+(REQUEST_\w+)\s+\(\s*\d+\) count:(\d+)", cluster.run("sdiag").stdout, re.M))
        kinds = ("NODE_INFO", "RESERVATION_INFO", "BUILD_INFO", "STATS_INFO")
        return {kind: int(counts.get(f"REQUEST_{kind}", 0)) for kind in kinds}

    before = asked()
    for _ in range(10):
        for line, _ in PLACES[:12]:
            assert offered(line) is not None
    assert asked() == {**before, "STATS_INFO": before["STATS_INFO"] + 1}


@pytest.mark.here_only("it stops the agent, which is one either way")
def test_an_agent_that_does_not_answer_keeps_nobody(
    known: dict[str, str], offered: Callable[[str], list[str]], kernel: Any
) -> None:
    agent = int(kernel.value("held._cluster.client.info['pid']"))
    kernel.ok(
        "%salloc --hold as=later\nimport jupyter_slurm\nlast = jupyter_slurm.allocations()[0]\nlast._updated_at = 0"
    )
    os.kill(agent, signal.SIGSTOP)
    try:
        kernel.ok(
            "from jupyter_slurm.client.clusters import name_completion as facts\nfor one in facts._known.values(): one.next_request_at = 0"
        )
        assert offered("%%sbatch -p ") == ["arandu", "devwork"], "last known states"
        assert not {"arandu", "--partition"} & set(offered("%%sbatch --reservation ")), "nothing is known of them"
        assert offered("%srun on=la") == ["later", "last"], "as it was when last heard of"
    finally:
        os.kill(agent, signal.SIGCONT)
    kernel.ok("later.release()")


@pytest.mark.here_only("it is about the words, not about the way")
def test_odd_names_can_be_typed(known: dict[str, str], offered: Callable[[str], list[str]], kernel: Any) -> None:
    kernel.ok(
        "from jupyter_slurm.domain.cluster_facts import NamedEntity\nfrom jupyter_slurm.client.clusters import name_completion as facts\n"
        "key = next(key for key in facts._known if key[0] == 'partition')\nkept = facts._known[key].names\n"
        "facts._known[key].next_request_at, facts._known[key].request = 1e12, None\n"
        "facts._known[key].names = [NamedEntity(n, '') for n in ('b.x_2-y', 'b+h', 'b$HOME', 'b{x}', 'b\\u00e9', 'b\\x07', \"b'q\")]"
    )
    try:
        assert offered("%%sbatch -p b") == ["b.x_2-y", "b+h", r"b\$HOME", r"b\{x}", "b\u00e9", r"b\'q"]
        assert offered("%%sbatch -p 'b$") == ["b$HOME"]
    finally:
        kernel.ok("facts._known[key].names, facts._known[key].next_request_at = kept, 0")


def test_what_cannot_run_is_said_once(known: dict[str, str], kernel: Any) -> None:
    """For an accepted job as a warning, for a refused one as the hint of the error."""
    taken = kernel.ok("%%sbatch --hold\n#!/bin/sh\n#SBATCH -n 65\ntrue")
    assert re.fullmatch(
        r"Warning: The job needs 65 CPUs, but there are 64 in partition devwork\. \(checked \d\d:\d\d\)\n",
        taken.stderr,
    )
    refused = kernel.run("%%sbatch -p arndu\n#!/bin/sh\ntrue")
    assert (refused.error, refused.stderr) == ("SubmitRefused", "")
    assert refused.traceback.count("There is no partition arndu. Did you mean arandu?") == 1
    python = kernel.run("%%sbatch -p arandu --gres gpu:a100:9 python=/usr/bin/python3\nprint()")  # requested before
    assert (python.error, python.stderr) == ("SubmitRefused", "")
    assert python.traceback.count("at most 8 a100 GPUs") == 1
    assert "(checked " not in kernel.ok("%%sbatch --hold -n 64\n#!/bin/sh\ntrue").stderr
    for line in ("%salloc -p arandu --gres gpu:a100:9", "%srun -p arandu --gres gpu:a100:9 hostname"):
        assert "at most 8 a100 GPUs" in kernel.run(line).traceback
    held = kernel.ok("%salloc -p arandu --hold -N 2 as=big")
    assert "Warning: --nodes=2 asks for 2 nodes, but the number of nodes in partition arandu is 1." in held.stderr
    kernel.ok("big.release()")


def test_the_older_way_to_ask_says_the_same(
    known: dict[str, str], offered: Callable[[str], list[str]], kernel: Any
) -> None:
    kernel.ok("get_ipython().kernel.use_experimental_completions = False")
    try:
        assert offered("%%sbatch --gres gpu:a100:8") == ["gpu:a100:8"]
        assert offered("%%sbatch -w c4aiscw1,dg") == ["dgx01"]
        assert offered(f"%scancel {known['held']}") == [known["held"]]
    finally:
        kernel.ok("get_ipython().kernel.use_experimental_completions = True")


def test_unloading_takes_it_away(bare_kernel: Any) -> None:
    def offered() -> list[str]:
        return list(bare_kernel.complete("%%sbatch --par")[0])

    bare_kernel.ok("%load_ext jupyter_slurm\n%reload_ext jupyter_slurm")
    assert sorted(offered()) == ["--parsable", "--partition"]
    bare_kernel.ok("%unload_ext jupyter_slurm")
    assert "--partition" not in offered()
