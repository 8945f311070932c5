"""Tests of each site on its replica: its built-in profile connects, and the requirements of its guide hold.

These tests know no site by name: the expected values are in its profile and in ``tests/sites/NAME.toml``.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from replicas import Replica

from jupyter_slurm.domain.slurm_values import parse_time_limit
from jupyter_slurm.embedded.description import Partition
from jupyter_slurm.sites.profile import load_profile, profile_items


def gpus_of(replica: Replica, partition: Partition) -> int:
    """Return the number of GPUs of a node of a partition."""
    return min(group.gpu_count for group in replica.site.cluster.nodes if set(group.names) & set(partition.nodes))


def options(replica: Replica, partition: Partition, gpus: int = 1) -> list[str]:
    """Return the necessary options of a job in that partition."""
    words = ["-p", partition.name]
    words += ["-A", partition.allow_accounts[0]] if partition.allow_accounts else []
    return [*words, "-N", "1", *(["--gpus", str(gpus)] if gpus_of(replica, partition) else [])]


def submit(replica: Replica, text: str, *words: str) -> str:
    """Run a cell that submits and waits; return the output of the job."""
    cell = replica.laptop.run(f"%%sbatch {' '.join(words)} as=job wait\n{text}")
    assert not cell.error, cell.error
    return replica.laptop.value("job.stdout")


def state(replica: Replica, number: str) -> str:
    """Return the state of a job, as the controller knows it."""
    question = ["squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T"]
    return replica.controller.run(*question).stdout.strip()


def refused(replica: Replica, *words: str) -> str:
    """Run a cell that no node can execute; return the message: Slurm's refusal, or the warning before the wait."""
    cell = replica.laptop.run(f"%%sbatch {' '.join(words)} as=beyond\n#!/bin/sh\ntrue")
    if cell.error:
        assert "SubmitRefused" in cell.error, f"{words}: {cell.error}"
        return cell.error
    replica.laptop.run("beyond.cancel()")  # on some sites, Slurm accepts a job that waits forever
    assert "Warning" in cell.text, f"{words}: {cell.text}"
    return cell.text


def test_the_profile_leads_there(replica: Replica) -> None:
    checked = replica.laptop.command("sites", "check", replica.name)
    assert (checked.returncode, checked.stdout) == (0, f"{replica.name}: valid\n"), checked.stderr
    asked = replica.laptop.command("doctor", replica.name)
    assert asked.returncode == 0, asked.stdout + asked.stderr
    profile, described = load_profile(replica.name, [str(replica.laptop.profile.parent)]), replica.site.cluster
    hops = [replica.site.way.gateway] if replica.site.way.gateway else []
    assert (list(profile.jump or ()), profile.host) == (hops, replica.site.way.login)
    partitions = {partition.name for partition in described.partitions}
    assert set(profile.cost.get("partitions", {})) <= partitions
    assert profile.launch.get("partition") in {None, *partitions}
    items = profile_items(replica.name, replica.site.profile.encode(), replica.name)
    listed, accounts = items.get("partitions", {}), set(items.get("accounts", {}))
    # A replica has one of the partitions that accounts have for themselves.
    assert set(listed) - (accounts - partitions) in (set(), partitions)
    for partition in described.partitions:
        limit = listed.get(partition.name, {}).get("max_time", partition.max_time)
        assert parse_time_limit(limit or "UNLIMITED") == parse_time_limit(partition.max_time or "UNLIMITED"), (
            partition.name
        )
    assert profile.storage.get("home_on_nodes", True) == replica.site.storage.home_on_nodes
    kinds = {kind for group in described.nodes for kind in (*group.gpus, *group.features)}
    told = profile.advice.get("cpus_per_gpu", {})
    assert set(told if isinstance(told, dict) else ()) <= {"default", *kinds}
    assert profile.container.get("runtime") in {None, replica.site.software.runtime}


def test_a_card_of_the_launcher_names_gpus_only_if_the_cluster_has_some(replica: Replica) -> None:
    told = replica.laptop.run(
        "from jupyter_slurm.client.clusters.cluster import current\nprint(current().client.get(current().path())['gpus'])"
    )
    assert told.text.splitlines()[0] == str(any(group.gpus for group in replica.site.cluster.nodes))


def test_the_way_in_is_the_only_one(replica: Replica) -> None:
    way, said = replica.site.way, replica.laptop.asked
    asked = [way.asks, *([way.login_asks] if way.gateway else [])]
    assert said.count("assword for") + said.count("assword: ") == sum("password" in one for one in asked)
    assert ("erification code" in said) == way.asks.endswith("code")
    inside = [*replica.nodes.values(), *([replica.login] if way.gateway else [])]
    with ThreadPoolExecutor(len(inside)) as pool:
        assert not any(pool.map(reaches, [host.address for host in inside]))


def reaches(address: str) -> bool:
    try:
        socket.create_connection((address, 22), timeout=1).close()
    except OSError:
        return False
    return True


def test_a_job_runs_in_each_partition(replica: Replica) -> None:
    described, cells = replica.site.cluster, []
    for number, partition in enumerate(described.partitions):
        words = " ".join(options(replica, partition))
        cells.append(f"get_ipython().run_cell_magic('sbatch', {f'{words} as=p{number}'!r}, {_LOOK!r})")
    begun = replica.laptop.run("\n".join(cells))
    assert not begun.error, begun.error
    names = ", ".join(f"p{number}" for number in range(len(described.partitions)))
    replica.laptop.run(f"for one in [{names}]: one.wait()")
    told = replica.laptop.value(rf"'\n'.join(f'{{one.state}} {{one.stdout.rstrip(chr(10))}}' for one in [{names}])")
    for partition, line in zip(described.partitions, told.splitlines(), strict=True):
        state, node, visible, given = line.split(" ")
        assert (state, node in partition.nodes) == ("COMPLETED", True), f"{partition.name}: {line}"
        # Only Slurm sets this variable: GPUs are counted in the order of their devices.
        expected = (
            gpus_of(replica, partition)
            if partition.oversubscribe == "EXCLUSIVE"
            else min(1, gpus_of(replica, partition))
        )
        assert visible == given, f"{partition.name}: {line}"
        assert len([word for word in visible.split(",") if word]) == expected, f"{partition.name}: {line}"


_LOOK = (
    "import os\nprint(os.uname()[1], os.environ.get('CUDA_VISIBLE_DEVICES', ''), os.environ.get('SLURM_JOB_GPUS', ''))"
)


def test_what_is_beyond_a_limit_is_refused_in_words(replica: Replica) -> None:
    described = replica.site.cluster
    for partition in described.partitions:
        most = gpus_of(replica, partition)
        if most:
            assert partition.name in refused(replica, *options(replica, partition, most + 1))
        else:
            cpus = max(group.cpus for group in described.nodes)
            assert "cpu" in refused(replica, *options(replica, partition), "-c", str(cpus + 1)).lower()
        if partition.max_time:
            said = refused(replica, *options(replica, partition), "--time", "364-00:00:00")
            assert re.search(r"time limit|--time=\S+ is more", said)
            assert partition.name in said
        if partition.allow_accounts:
            assert partition.allow_accounts[0] in refused(replica, "-p", partition.name)
    limits = {qos.name: qos.limits["MaxTRESPerUser"].removeprefix("gres/gpu=") for qos in described.qos if qos.limits}
    beyond = [(options(replica, one, int(limits[one.qos]) + 1), one.qos) for one in described.partitions if one.qos]
    for user in described.users:
        beyond += [(["--gpus", str(int(limits[qos]) + 1), "--qos", qos], qos) for qos in user.qos if qos in limits]
    for words, qos in beyond:
        assert "QOS" in refused(replica, *words), qos


def test_nodes_see_what_the_site_lets_them_see(replica: Replica) -> None:
    storage, described = replica.site.storage, replica.site.cluster
    (replica.home / "note").write_text("of home")
    for path in storage.shared:
        replica.on_disk(f"{path}/note").write_text(f"of {path}")
    places = [storage.home, *storage.shared, *storage.local]
    script = _READ.format(notes=[f"{path}/note" for path in places])
    write = _WRITE.format(notes=[f"{path}/note" for path in storage.local])
    partition = max(described.partitions, key=lambda one: len(one.nodes))
    here, there = [f"-w {name} {' '.join(options(replica, partition))}" for name in partition.nodes[:2]]
    seen = ["of home" if storage.home_on_nodes else "nothing", *(f"of {path}" for path in storage.shared)]
    assert submit(replica, f"{script}\n{write}", here).splitlines() == [*seen, *("nothing" for _ in storage.local)]
    assert submit(replica, script, there).splitlines() == [*seen, *("nothing" for _ in storage.local)]
    first = partition.nodes[0]
    assert submit(replica, script, here).splitlines() == [*seen, *(f"of {first}" for _ in storage.local)]
    for path in storage.local:
        assert replica.login.run("test", "-e", path, check=False).returncode == 1


_READ = """
import os
for note in {notes}:
    print(open(note).read() if os.path.exists(note) else "nothing")
"""
_WRITE = """
for note in {notes}:
    open(note, "w").write("of " + os.uname()[1])
"""


def test_a_job_begins_in_a_directory_that_its_node_sees(replica: Replica) -> None:
    storage = replica.site.storage
    told = submit(replica, "import os\nprint(os.getcwd())", *options(replica, replica.site.cluster.partitions[0]))
    assert told.strip() == (storage.home if storage.home_on_nodes else storage.shared[0])
    assert replica.laptop.value("job.stderr") == ""
    assert replica.laptop.value("[one for one in job.data['warnings'] if 'do not see' in one]") == "[]"


def test_a_container_has_the_gpus_of_its_job_and_is_gone_with_it(
    replica: Replica, wait_for: Callable[..., Any]
) -> None:
    software, described = replica.site.software, replica.site.cluster
    if not software.runtime:
        pytest.skip("the site has none")
    (image, *_), node = software.images, (software.nodes or described.node_names)[0]
    partition = next(one for one in described.partitions if node in one.nodes)
    gpus = gpus_of(replica, partition)
    image = image if image.startswith("/") else f"docker://{image}"
    wish = [f"-w {node}", f'"env={image}"', "as=job", *options(replica, partition, 2)]
    if gpus:  # the first GPU belongs to another job, and no other one to a job that is still ending
        listed = ["squeue", "--noheader", f"--nodelist={node}", "--format=%A"]
        wait_for(lambda: not replica.controller.run(*listed).stdout.split(), f"nobody on {node}")
        taken = replica.laptop.run(
            f"%%sbatch {' '.join(options(replica, partition))} -w {node} as=other\n#!/bin/sh\nsleep 600"
        )
        assert not taken.error, taken.error
        number = replica.laptop.value("other.id")
        wait_for(lambda: state(replica, number) == "RUNNING", "the other job")
    cell = replica.laptop.run(f"%%sbatch {' '.join(wish)} wait\n{_INSIDE}")
    assert not cell.error, cell.error
    devices, variable, system = replica.laptop.value("job.stdout").splitlines()
    assert system == "12", "the image's own system"
    if replica.dockers:
        assert devices == "nvidia1 nvidia2"
    assert variable == ({"docker": "0,1"}.get(software.runtime, "1,2") if gpus else "none")
    wait_for(lambda: not replica.containers(), "no container")

    replica.laptop.run(f"%%sbatch {' '.join(wish)} --time 5\nimport time\nprint('begun', flush=True)\ntime.sleep(600)")
    if replica.dockers:
        wait_for(replica.containers, "a container")
        docker = replica.dockers[node]
        told = docker.node.run("docker", "inspect", "--format", "{{.HostConfig.CpusetCpus}}", *docker.containers())
        assert told.stdout.strip(), "it has the CPUs of the job"
    numbers = [replica.laptop.value(f"{name}.id") for name in ("job", *(["other"] if gpus else []))]
    replica.laptop.run("job.cancel()" + ("; other.cancel()" if gpus else ""))
    wait_for(lambda: {state(replica, number) for number in numbers} == {"CANCELLED"}, "no job")
    wait_for(lambda: not replica.containers(), "no container")


_INSIDE = """
import os
print(*sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")))
print(os.environ.get("CUDA_VISIBLE_DEVICES") or "none")
print(open("/etc/debian_version").read().partition(".")[0])
"""


_BURST = 15 + 6  # queries of the queue and about single jobs that may come at once


def test_who_has_the_right_takes_the_place_of_who_has_not(replica: Replica, wait_for: Callable[..., Any]) -> None:
    described = replica.site.cluster
    if described.preemption.by != "partition":
        pytest.skip("nobody makes room there")
    low, high = sorted(described.partitions, key=lambda one: one.priority_tier or 0)[:: len(described.partitions) - 1]
    node, gpus = low.nodes[0], gpus_of(replica, low)
    begun = replica.laptop.run(
        f"%%sbatch -w {node} {' '.join(options(replica, low, gpus))} as=low\n#!/bin/sh\nsleep 600"
    )
    assert not begun.error, begun.error
    number = replica.laptop.value("low.id")

    wait_for(lambda: state(replica, number) == "RUNNING", "the job that may be ended")
    assert submit(replica, "print('in its place')", f"-w {node}", *options(replica, high)) == "in its place\n"
    wait_for(lambda: state(replica, number) == "PENDING", "it waits again")
    replica.laptop.run("low.cancel()")


def test_nobody_is_disturbed(replica: Replica, wait_for: Callable[..., Any]) -> None:
    """The controller is queried seldom; nothing remains on the login node, and only small files in the home."""
    laptop = replica.laptop
    submit(replica, "print(1)", *options(replica, replica.site.cluster.partitions[0]))  # copies the runner to the site
    told = replica.controller.run("sdiag").stdout
    (asked,) = re.findall(rf"^\s*{replica.user}\s.*count:(\d+)", told, re.M)
    (submitted,) = re.findall(r"REQUEST_SUBMIT_BATCH_JOB\s.*count:(\d+)", told)
    assert int(asked) - int(submitted) <= (
        # A line of a guide may have two commands of Slurm, and resources() has eight queries.
        0.2 * (time.monotonic() - laptop.since) + _BURST + 2 * laptop.cells + 8 * laptop.commands
    ), told

    before = sizes(replica.home)
    submit(replica, "print(1)", *options(replica, replica.site.cluster.partitions[0]))
    written = {path: size for path, size in sizes(replica.home).items() if before.get(path) != size}
    job_root = load_profile(replica.name, [str(laptop.profile.parent)]).job_root
    own = job_root.removeprefix("~/") if job_root.startswith("~/") else "nothing"
    assert [path for path in written if not path.startswith(f"{own}/")] == []
    assert sum(written.values()) <= 24_000, written

    assert laptop.command("disconnect", replica.name, "--yes").returncode == 0
    wait_for(lambda: not processes(replica), f"nothing on the login node: {processes(replica)}")
    said = laptop.connect()
    assert said.code == 0, said.text


def sizes(folder: Path) -> dict[str, int]:
    """Return the sizes of all files below a folder, by path."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.stat().st_size for path in found}


def processes(replica: Replica) -> list[str]:
    """Return the user's processes on the login node."""
    listed = replica.login.run("ps", "-o", "args=", "-u", replica.user, check=False).stdout
    return [line for line in listed.splitlines() if line]
