"""Tests of ``jupyter slurm kernel``: the kernels that Jupyter then offers, and a notebook that runs on one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from jupyter_slurm.embedded import EmbeddedCluster

Slurm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def jupyter(own_agent: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Provide the environment of a user whose Jupyter has separate folders."""
    folders = {f"JUPYTER_{name}_DIR": str(tmp_path / name.lower()) for name in ("DATA", "RUNTIME")}
    for folder in folders.values():
        Path(folder).mkdir(mode=0o700)
    return {**own_agent, **folders, "JUPYTER_PATH": "", "COLUMNS": "200"}


@pytest.fixture
def slurm(jupyter: dict[str, str]) -> Slurm:
    """Run ``jupyter slurm WORDS``."""

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "jupyter_slurm.cli.main", *words]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.run(argv, env={**jupyter, **more}, text=True, timeout=120, check=False, **pipes)

    return run


def _profile(folder: Path, name: str, host: str = "login.invalid", port: int = 22) -> None:
    (folder / "sites").mkdir(exist_ok=True)
    text = f'[login]\nhost = "{host}"\nuser = "me"\nport = {port}\n'
    (folder / "sites" / f"{name}.toml").write_text(text)


def test_a_laptop_without_a_slurm_has_the_clusters_of_its_profiles(slurm: Slurm, tmp_path: Path) -> None:
    _profile(tmp_path, "near", host="127.0.0.1", port=1)  # a port without a listener
    alone = {"PATH": str(tmp_path / "no programs")}
    for command in (("launch",), ("kernel", "add")):
        said = slurm(*command, "near", "-p", "gpu", **alone).stderr
        assert "no cluster is chosen" not in said
    assert "no cluster is chosen" in slurm("kernel", "add", "-p", "gpu", **alone).stderr


def test_uninstall_leaves_no_agent_no_kernel_and_no_state(
    slurm: Slurm, jupyter: dict[str, str], tmp_path: Path
) -> None:
    config = Path(jupyter["JUPYTER_CONFIG_DIR"], "jupyter_slurm_config.json")
    values = json.loads(config.read_text())
    chosen = values["Settings"].pop("state_dir")
    config.write_text(json.dumps(values))
    _profile(tmp_path, "far")
    usual = {"XDG_STATE_HOME": str(tmp_path / "usual")}
    kernels, state = tmp_path / "data" / "kernels", tmp_path / "usual" / "jupyter_slurm"
    other = kernels / "other" / "kernel.json"
    other.parent.mkdir(parents=True)
    other.write_text('{"argv": ["true"], "display_name": "Other", "language": "python"}')
    assert slurm("kernel", "add", "far", "-p", "gpu", **usual).returncode == 0
    assert slurm("jobs", **usual).stdout == ""
    assert slurm("agent", "status", **usual).returncode == 0
    refused = slurm("uninstall", **usual)
    assert refused.returncode == 1
    assert "There is no terminal to ask this question" in refused.stderr
    assert state.is_dir()
    assert len(list(kernels.iterdir())) == 2
    done = slurm("uninstall", "--yes", **usual)
    assert done.returncode == 0, done.stderr
    assert "Stopped the agent." in done.stdout
    assert [folder.name for folder in kernels.iterdir()] == ["other"]
    assert not state.exists()
    assert slurm("agent", "status", **usual).returncode == 1
    assert not list(Path(values["Settings"]["runtime_dir"]).glob("v*"))
    assert (tmp_path / "sites" / "far.toml").exists(), "what the user has written stays"

    values["Settings"]["state_dir"] = chosen  # a directory that the user has chosen may have other files
    config.write_text(json.dumps(values))
    slurm("jobs")
    assert f"Kept {chosen}" in slurm("uninstall", "--yes").stdout
    assert Path(chosen).is_dir()


def test_kernels_are_added_listed_and_removed(slurm: Slurm, tmp_path: Path) -> None:
    _profile(tmp_path, "far")
    line = ("-p", "gpu", "--gpus=a100:2", "--time", "8:00:00")
    added = slurm("kernel", "add", "far", *line)  # without a login
    assert added.stdout.startswith("Added the kernel 'far gpu · 2 A100 GPUs · 8 h' as "), added.stderr
    spec = json.loads((tmp_path / "data" / "kernels" / "far-gpu-2-a100-gpus-8-h" / "kernel.json").read_text())
    assert spec["argv"] == [
        sys.executable,
        "-P",
        "-m",
        "jupyter_slurm.kernels",
        "-f",
        "{connection_file}",
        "far",
        *line,
    ]
    assert spec["metadata"]["kernel_provisioner"] == {"provisioner_name": "jupyter-slurm"}
    assert (spec["language"], spec["interrupt_mode"]) == ("python", "signal")

    slurm("kernel", "add", "far", *line)  # the same request adds no second kernel
    other = slurm("kernel", "add", "far", *line, "image=r-base:4.4.1", "kernel=ir", "idle=2h")
    assert other.stdout.startswith("Added the kernel 'R (r-base:4.4.1) · far gpu · 2 A100 GPUs · 8 h' as ")
    assert "<svg" in (tmp_path / "data" / "kernels" / "far-gpu-2-a100-gpus-8-h" / "logo-svg.svg").read_text()
    for more, shown in (("--mem=64G", "2 A100 GPUs · 64G · 8 h"), ("--qos=long", "2 A100 GPUs · 8 h · qos long")):
        for _ in range(2):  # the request that looks the same is told apart, also the second time
            same = slurm("kernel", "add", "far", *line, more)
            assert same.stdout.startswith(f"Added the kernel 'far gpu · {shown}' as "), same.stderr
        slurm("kernel", "remove", f"far gpu · {shown}")
    slurm("kernel", "add", "far", "-c", "4", "name=../../..")
    slurm("kernel", "add", "far", "-c", "8", "name=../../..")  # a kernel of the same name is replaced
    slurm("kernel", "add", "far", "-c", "4", "name=_own_")
    slurm("kernel", "add", "far", "-c", "4", "name=Ação à noite")
    listed = {one["name"]: one for one in json.loads(slurm("kernel", "list", "--json").stdout)}
    assert [*listed] == [
        "acao-a-noite",
        "far-gpu-2-a100-gpus-8-h",
        "kernel",
        "own",
        "r-r-base-4.4.1-far-gpu-2-a100-gpus-8-h",
    ]
    assert listed["kernel"]["words"] == ["far", "-c", "8", "name=../../.."]
    table = slurm("kernel", "list").stdout
    assert all(one["display_name"] in table for one in listed.values())

    refused = {
        ("nowhere",): "nowhere",
        ("far", "on=train", "-c", "2"): "on=train",
        ("far", "lease=1s"): "lease=1s",
        ("far", "kernal=ir"): "kernel",
        ("far", "--array=1-2"): "--array",
        ("far", "env=auto"): "jupyter slurm env create NAME from=this",
    }
    for words, says in refused.items():
        done = slurm("kernel", "add", *words)
        assert done.returncode == 1, (words, done)
        assert says in done.stderr, (words, done)
    theirs = tmp_path / "data" / "kernels" / "theirs"
    theirs.mkdir()
    (theirs / "kernel.json").write_text(json.dumps({**spec, "metadata": {}}))
    assert slurm("kernel", "remove", "theirs").returncode == 1
    assert slurm("kernel", "remove", "..").returncode == 1
    for name in (
        "kernel",
        "_own_",
        "Ação à noite",
        "far gpu · 2 A100 GPUs · 8 h",
        "r-r-base-4.4.1-far-gpu-2-a100-gpus-8-h",
    ):
        assert slurm("kernel", "remove", name).returncode == 0
    assert [one.name for one in (tmp_path / "data" / "kernels").iterdir()] == ["theirs"]


@pytest.mark.slurm
def test_clusters_of_one_name_are_meant_by_their_ids(
    slurm: Slurm, cluster: EmbeddedCluster, new_cluster: Callable[..., EmbeddedCluster], tmp_path: Path
) -> None:
    name, other = cluster.name, new_cluster()
    assert "sbatch has no option --bad" in slurm("launch", name, "--bad", **cluster.env()).stderr, (
        "without a profile of that name, the ClusterName means the Slurm of this computer"
    )
    _profile(tmp_path, name, host="127.0.0.1", port=1)  # a port without a listener
    launched = slurm("launch", name, "--mem=1G", **cluster.env())
    assert "127.0.0.1" in launched.stderr, "a profile's name means the profile, as in `kernel add` and `--cluster`"
    line = ("--gpus=1", "--time=20:00")
    for first, env, words in (
        ([name], cluster.env(), [name, *line]),
        (["local"], cluster.env(), [*line]),
        ([], other.env(), [*line]),
        (["local"], other.env(), [*line]),
    ):
        added = slurm("kernel", "add", *first, *line, **env)
        assert added.returncode == 0, added.stderr
        kernels = json.loads(slurm("kernel", "list", "--json").stdout)
        assert words in [one["words"] for one in kernels]
    assert [one["display_name"] for one in kernels] == [
        f"{name} · 1 GPU · 20 min",
        f"{name} · 1 GPU · 20 min (2)",
        f"{name} · 1 GPU · 20 min · {other.slurm_conf.parent}",
    ]
    assert f"SLURM_CONF={other.slurm_conf}" in slurm("kernel", "list").stdout

    submitted = other.run("sbatch", "--parsable", "-o/dev/null", "--wrap=sleep 600").stdout.strip()
    (known,) = json.loads(slurm("jobs", "--json", **other.env()).stdout)
    for env in (cluster.env(), {}):
        (job,) = json.loads(slurm("jobs", "--cluster", known["cluster"], "--json", **env).stdout)
        assert (job["cluster"], job["id"]) == (known["cluster"], submitted)
    unknown = slurm("jobs", "--cluster", "local-0", **cluster.env())
    assert "There is no cluster 'local-0' on this computer." in unknown.stderr


@pytest.mark.slurm
def test_a_notebook_runs_on_a_kernel_that_was_added(
    slurm: Slurm, jupyter: dict[str, str], cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**jupyter, **cluster.env()}.items():
        monkeypatch.setenv(name, value)
    made = tmp_path / "own"
    venv.create(made)
    packages = made / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (packages / "ours.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    added = slurm("kernel", "add", "-p", "arandu", "--gpus", "1", f"env={made}", **cluster.env())
    assert added.stdout.startswith("Added the kernel 'Python (own) · arandu · 1 GPU' as "), added.stderr
    cells = [
        "import os; had = [os.environ[n] for n in ('SLURM_JOB_PARTITION', 'SLURM_STEP_GPUS')]",
        "import sys; print(had, os.getcwd(), sys.prefix, os.environ['VIRTUAL_ENV'])",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    folder = tmp_path / "beside the notebook"
    folder.mkdir()
    client = NotebookClient(
        notebook,
        kernel_name="python-own-arandu-1-gpu",
        timeout=300,
        startup_timeout=300,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    said = "".join(output["text"] for output in notebook.cells[1].outputs if output.output_type == "stream")
    assert re.search(rf"\['arandu', '\d+'\] {folder} {made} {made}\n", said), notebook
    # The allocation was released with the kernel, and its record has no secret.
    jobs = json.loads(slurm("jobs", "--all", "--json", **cluster.env()).stdout)
    kernel = next(job for job in jobs if job["kind"] == "allocation")
    assert (kernel["kernel"]["name"], kernel["released"]) == ("python-own-arandu-1-gpu", "asked")
    step = next(file.parent for file in (tmp_path / "jobs").glob("*/*/kernel.json"))
    secret = json.loads((step / "kernel.json").read_text())["secret"]
    assert (step / "kernel.json").stat().st_mode & 0o077 == 0
    for file in (tmp_path / "jobs").rglob("*"):
        if file.is_file() and file.name != "kernel.json":
            assert secret.encode() not in file.read_bytes(), file
