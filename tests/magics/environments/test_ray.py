"""Tests of Python cells with a Ray cluster on the nodes of their job: real Ray, two nodes on one machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import signal
import socket
import subprocess
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from replicas import Replica

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(400),
    pytest.mark.here_only("what runs in the job is the same over SSH"),
]

WaitFor = Callable[..., Any]

BUSY = 250.0  # seconds for the start of Ray beside other tests: its dozen processes share two cores

TWO = "-p devwork -N 2 -c 2 --mem 1G launcher=ray"
PLAIN = "python=/usr/bin/python3"


@pytest.fixture
def packages(ray_packages: Path) -> str:
    """Provide the variables that add Ray to a job."""
    return f"--export=ALL,PYTHONPATH={ray_packages}"


def left(job: str) -> list[str]:
    """Return the processes with Ray's folder of a job in their command line, or an open file in it."""
    found, folder = [], f"/tmp/ray-{job}-"
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            files = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
            if folder in words or any(file.startswith(folder) for file in files):
                found.append(f"{pid} {words[:100]}")
    return found


# Slurm's share of two nodes; a client without the token; and a killed raylet of a node, after which the cell continues.
CELL = """
import json, os, signal, stat, subprocess, sys, time, ray
address, password = os.environ["ip_head"], os.environ["redis_password"]  # as scripts of older guides do
ray.init(address=address, _redis_password=password, log_to_driver=False, logging_level="ERROR")

@ray.remote(num_cpus=2)
def where(step):
    time.sleep(0.3)
    return os.environ["SLURMD_NODENAME"], os.getppid()

raylets = dict(ray.get([where.remote(step) for step in range(4)]))
while len(raylets) < 2:
    raylets.update(ray.get([where.remote(step) for step in range(4)]))
told = {node["NodeName"]: node["Resources"]["CPU"] for node in ray.nodes()}
folder = os.path.dirname(ray._private.worker._global_node.get_temp_dir_path())
token = os.stat(os.environ["RAY_AUTH_TOKEN_PATH"])
stranger = "import ray; ray.init()"
env = {**os.environ, "RAY_AUTH_MODE": "disabled"}
refused = subprocess.Popen([sys.executable, "-c", stranger], env=env, stdout=-1, stderr=-2, text=True)
is_refused = any("InvalidAuthToken" in line for line in refused.stdout)
refused.kill()
modes = [oct(stat.S_IMODE(found.st_mode)) for found in (os.stat(folder), token)]
print(json.dumps([told, sorted(raylets), modes, is_refused]), flush=True)
rate = rate * 2
os.kill(raylets["c4aiscw2"], signal.SIGKILL)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
print("went on")
"""


def test_a_cell_has_all_its_nodes_and_hears_of_one_that_is_lost(
    kernel: Any, packages: str, gate: Callable[[str], Path], wait_for: WaitFor
) -> None:
    go = gate("go")
    kernel.ok("rate = 0.5")
    kernel.ok(f"%%sbatch {TWO} {PLAIN} {packages} in=rate out=rate as=grid -- {go}\n{CELL}")
    lost = r"^launcher: Ray ended on c4aiscw2 \(exit code 1\)\. Last lines of its log:\n    raylet: signal 9$"
    wait_for(lambda: re.search(lost, kernel.value("grid.stderr"), re.MULTILINE), "word of the lost node", BUSY)
    go.touch()
    kernel.ok("grid.wait()")
    lines = kernel.value("grid.stdout").splitlines()
    nodes, used, modes, is_refused = json.loads(lines[0])
    assert nodes == {"c4aiscw1": 2.0, "c4aiscw2": 2.0}
    assert used == ["c4aiscw1", "c4aiscw2"]
    assert modes == ["0o700", "0o600"]
    assert is_refused
    assert "went on" in lines  # after this line, Ray itself reports the node
    assert kernel.value("rate") == "1.0"
    job = kernel.value("grid.id")
    wait_for(lambda: not left(job) and not list(Path("/tmp").glob(f"ray-{job}-*")), "nothing of it")


def test_a_node_without_ray_is_named_and_the_cell_does_not_begin(kernel: Any, packages: str, tmp_path: Path) -> None:
    """Also on one node, if that node has no Ray."""
    tmp_path.chmod(0o755)
    broken = "import os, sys\nif os.environ.get('SLURMD_NODENAME') == 'c4aiscw2': sys.path[:] = [p for p in sys.path if 'ray' not in p]\n"
    (tmp_path / "sitecustomize.py").write_text(broken)
    kernel.ok(f"%%sbatch {TWO} {PLAIN} {packages}:{tmp_path} as=half\nprint('begun')\n")
    ran = kernel.run(f"%%sbatch -p devwork launcher=ray {PLAIN} wait as=none\nprint('begun')\n")
    assert ran.error == "JobFailed"
    assert "/usr/bin/python3 on c4aiscw" in ran.traceback
    assert "has no ray. Choose a Python with ray by env=NAME or python=PATH" in ran.traceback
    ran = kernel.run("half.wait()")
    assert ran.error == "JobFailed"
    assert "launcher: /usr/bin/python3 on c4aiscw2 has no ray" in ran.traceback
    assert kernel.value("half.stdout + none.stdout") == ""


GPUS = """
import json, os, time, ray
ray.init(logging_level="ERROR")
given = ray.remote(num_gpus=1)(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
print(json.dumps([os.environ["CUDA_VISIBLE_DEVICES"], ray.cluster_resources()["GPU"], ray.get(given.remote())]))
print(os.environ["RAY_ADDRESS"], flush=True)
time.sleep(600)
"""


def test_one_node_is_reached_from_there_only_and_ends_also_by_force(
    kernel: Any, packages: str, wait_for: WaitFor
) -> None:
    kernel.ok(f"%%sbatch -p arandu --gpus 2 -c 2 --mem 1G launcher=ray {PLAIN} {packages} as=gpus\n{GPUS}")
    wait_for(lambda: kernel.value("gpus.stdout.count(chr(10))") == "2", "two lines", BUSY)
    first, address = kernel.value("gpus.stdout").splitlines()
    visible, count, given = json.loads(first)
    assert (len(visible.split(",")), count) == (2, 2.0)
    assert given in visible.split(",")
    assert address.startswith("127.0.0.1:")
    job = kernel.value("gpus.id")
    assert len(left(job)) > 5
    cell = next(line.split()[0] for line in left(job) if "ray_node.py" in line)
    head = int(Path(f"/proc/{cell}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(head, signal.SIGKILL)
    wait_for(lambda: not left(job), f"nothing of it: {left(job)}")
    folders = list(Path("/tmp").glob(f"ray-{job}-*"))
    assert len(folders) == 1, "nobody was left to take it away"
    runpy.run_path(str(resources.files("jupyter_slurm.runner.ranks") / "ray_node.py"))[
        "sweep"
    ]()  # as the next test does
    assert not folders[0].exists()


@pytest.mark.root
def test_a_head_that_is_somebody_elses_is_not_told_the_token() -> None:
    """On a shared node, another user may take the port in Ray's command line before Ray does."""
    node = runpy.run_path(str(resources.files("jupyter_slurm.runner.ranks") / "ray_node.py"))
    with socket.create_server(("127.0.0.1", 0)) as own:
        node["check_whose"](f"127.0.0.1:{own.getsockname()[1]}")
    listens = (
        "import socket, sys; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    argv = ["/usr/bin/python3", "-c", listens]
    with subprocess.Popen(argv, user=12345, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        with pytest.raises(node["RayFailed"], match="Another user has port"):
            node["check_whose"](f"127.0.0.1:{int(other.stdout.readline())}")
        other.communicate()


@pytest.mark.sites("unipi")
def test_nodes_with_addresses_and_containers_of_their_own_end_with_the_job(
    replica: Replica, ray_packages: Path, wait_for: WaitFor
) -> None:
    """As in its guide: Ray in an image of Charliecloud on several hosts, as an ordinary user."""
    laptop, folder = replica.laptop, str(ray_packages)
    profile, image = laptop.profile.read_text(), next(iter(replica.site.software.images))
    box = f'[env.ray]\nimage = "{image}"\nbind = ["{folder}"]\nvariables = {{ PYTHONPATH = "{folder}" }}\n'
    laptop.profile.write_text(f"{profile}\n{box}")
    try:
        laptop.command("disconnect", replica.name, "--yes")
        assert laptop.connect().code == 0  # rereads the profile
        cell = CELL.partition("told =")[0].replace("num_cpus=2", "num_cpus=16")
        told = (
            "print(open('/etc/debian_version').read()[:3], *sorted({one['NodeManagerAddress'] for one in ray.nodes()}))"
        )
        begun = laptop.run(f"%%sbatch -N 2 launcher=ray env=ray as=boxes\n{cell}{told}\ntime.sleep(600)\n")
        assert not begun.error, begun.error
        addresses = sorted(replica.nodes[name].address for name in ("c01", "c02"))
        told = "boxes.stderr if boxes.state == 'FAILED' else boxes.stdout"
        printed = wait_for(lambda: laptop.value(told), "both nodes", BUSY)
        assert printed == " ".join(["12.", *addresses]) + "\n"  # all of it: a line is printed at once
        job = laptop.value("boxes.id")
        assert len(left(job)) > 10
        laptop.run("boxes.cancel()")
        wait_for(lambda: not left(job), "nothing of it")
    finally:
        laptop.profile.write_text(profile)
