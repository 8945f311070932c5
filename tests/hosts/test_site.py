"""Checks of the test site: one route in, second factors, two login hosts behind one name, a real Slurm."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import Site

pytestmark = [pytest.mark.root, pytest.mark.nightly]  # of the test bed itself


@pytest.fixture
def site(ssh_site: Site) -> Iterator[Site]:
    yield ssh_site
    ssh_site.point_login_at("login1")
    ssh_site.slurm.thaw_controller()
    ssh_site.logins["login1"].restore()


def test_the_way_leads_through_gateway_and_login_to_a_node(site: Site) -> None:
    for host, name in (("gateway", "gateway"), ("login", "login1"), ("login2", "login2"), ("node1", "node1")):
        before = len(site.asked)
        done = site.ssh(host, "hostname")
        assert done.stdout == f"{name}\n", done.stderr
        assert len(site.asked) == before + 1, "one code for each log-in at the gateway"
        assert "Verification code:" in site.asked[-1]
    assert site.ssh("login", "ssh -o BatchMode=yes node2 hostname").stdout == "node2\n"


def test_the_laptop_reaches_the_gateway_and_nothing_else(site: Site) -> None:
    socket.create_connection((site.gateway.address, 22), timeout=10).close()
    inside = [host.address for host in (*site.logins.values(), *site.nodes.values())]
    with ThreadPoolExecutor(len(inside)) as pool:
        assert not any(pool.map(_reaches, inside))
    for address in inside:
        route = json.loads(subprocess.run(["ip", "-json", "route", "get", address], capture_output=True).stdout)
        assert route[0]["dev"] == site.gateway.link.device, "not by this machine's default route"


def _reaches(address: str) -> bool:
    try:
        socket.create_connection((address, 22), timeout=5).close()
    except OSError:
        return False
    return True


def test_a_code_opens_one_log_in(site: Site) -> None:
    assert site.ssh("gateway", "true").returncode == 0
    (site.directory / "code").write_text("000000\n")
    environment = site.askpass_environment()
    refused = subprocess.run(site.client("gateway", "true"), env=environment, capture_output=True, text=True)
    assert refused.returncode == 255
    assert "Permission denied (keyboard-interactive)" in refused.stderr, "after the key, which counts in part"
    used = site.codes.next()
    assert site.ssh("gateway", "true").returncode == 0
    (site.directory / "code").write_text(f"{used}\n")
    assert subprocess.run(site.client("gateway", "true"), env=environment, capture_output=True).returncode == 255


def test_one_name_is_two_hosts(site: Site, tmp_path: Path) -> None:
    assert site.ssh("login", "echo here >/tmp/note; echo here >~/note; hostname").stdout == "login1\n"
    site.point_login_at("login2")
    done = site.ssh("login", "hostname; cat ~/note; cat /tmp/note")
    assert done.stdout == "login2\nhere\n", done.stderr
    only_first = tmp_path / "known_hosts"
    only_first.write_text(site.gateway.known_hosts_lines() + site.logins["login1"].known_hosts_lines("login"))
    config = tmp_path / "config"
    config.write_text(site.ssh_config.read_text().replace(str(site.known_hosts), str(only_first)))
    argv = ["ssh", "-F", str(config), "login", "hostname"]
    (site.directory / "code").write_text(site.codes.next() + "\n")
    refused = subprocess.run(argv, env=site.askpass_environment(), capture_output=True, text=True)
    assert refused.returncode == 255
    assert "HOST IDENTIFICATION HAS CHANGED" in refused.stderr


def test_slurm_is_on_login_and_nodes_only(site: Site, wait_for: Callable[..., Any]) -> None:
    done = site.ssh(
        "login", "cd; printf '#!/bin/sh\\nhostname; echo $SLURM_JOB_ID\\n' | sbatch --parsable -w node2 -o out"
    )
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    question = ("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T")
    wait_for(lambda: site.slurm.run(*question).stdout.strip() == "COMPLETED", "the job")
    assert site.ssh("login2", "cat out").stdout.split() == ["node2", job]
    assert site.ssh("login", "srun -N2 hostname | sort").stdout.split() == ["node1", "node2"]
    without = {name: value for name, value in os.environ.items() if name != "SLURM_CONF"}
    assert subprocess.run(["sinfo"], env=without, capture_output=True).returncode != 0, "the laptop has no Slurm"
    assert site.ssh("gateway", "sinfo").returncode != 0


def test_the_processes_of_every_host_can_be_looked_at(site: Site) -> None:
    lines = {machine.name: " ".join(machine.command_lines()) for machine in site.machines}
    assert set(lines) == {"gateway", "login1", "login2", "node1", "node2", "controller"}
    assert "slurmctld -D" in lines["controller"]
    assert "slurmd -D -N node2" in lines["node2"]
    assert all("sshd" in line for name, line in lines.items() if name != "controller")


def test_a_frozen_controller_answers_nobody(site: Site) -> None:
    site.slurm.freeze_controller()
    assert site.ssh("login", "timeout 2 squeue").returncode == 124
    site.slurm.thaw_controller()
    assert site.ssh("login", "squeue").returncode == 0
    site.slurm.stop_controller()
    site.slurm.start_controller()
    site.slurm.wait_until_idle(2)


def test_a_login_host_can_be_cut_off_from_inside(site: Site) -> None:
    site.logins["login1"].drop()
    cut = site.ssh("-o", "ConnectTimeout=2", "login1", "true")
    assert cut.returncode == 255
    assert site.ssh("login2", "true").returncode == 0
    site.logins["login1"].restore()
    assert site.ssh("login1", "true").returncode == 0


@pytest.mark.parametrize(
    ("way_in", "asked"),
    [("code", ["Verification code: "]), ("password+code", ["Password: ", "Verification code: "])],
)
def test_other_ways_in(new_ssh_site: Callable[..., Site], way_in: str, asked: list[str]) -> None:
    site = new_ssh_site(way_in=way_in, nodes=1)
    done = site.ssh("login", "hostname")
    assert done.stdout == "login1\n", done.stderr
    assert [question.partition(") ")[2] for question in site.asked] == asked


def test_a_push_to_a_phone(new_ssh_site: Callable[..., Site], wait_for: Callable[..., Any]) -> None:
    site = new_ssh_site(way_in="key+push", nodes=1)
    (site.directory / "password").write_text("1\n")
    argv, environment = site.client("gateway", "echo in"), site.askpass_environment()
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        wait_for(lambda: site.asked, "a question")
        assert client.poll() is None, "it waits for the phone"
        site.codes.press_yes()
        out, err = client.communicate(timeout=60)
    assert out == "in\n", err + site.gateway.log
    assert site.asked[0].partition(") ")[2] == (
        f"Two-factor login for {site.user}\n\n"
        "Enter a passcode or select one of the following options:\n 1. Push to XXX-XXX-0042\nPassword: "
    )


def test_nothing_is_left_of_a_site_that_could_not_be_made(
    new_ssh_site: Callable[..., Site],
) -> None:
    def machines() -> set[int]:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return {int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "unshare\n"}

    before = machines()
    with pytest.raises(AssertionError, match="NoSuchWord"):
        new_ssh_site(node_options={"NoSuchWord": 1})
    assert machines() == before


_MAKE_AND_WAIT = """
import sys, time
from pathlib import Path
from ssh_hosts import Site
site = Site(Path(sys.argv[1]), user=sys.argv[2], password="", key=Path(sys.argv[3]), nodes=1, round_trip=0.02)
print(site.gateway.link.device, *(pid for machine in site.machines for pid in (machine.pid, *machine.processes())))
sys.stdout.flush()
time.sleep(600)
"""


def test_nothing_is_left_of_a_site_whose_test_run_was_killed(
    new_user: Callable[..., str], short_tmp: Path, ssh_key: Path, wait_for: Callable[..., Any]
) -> None:
    (short_tmp / "orphan").mkdir()
    argv = [sys.executable, "-c", _MAKE_AND_WAIT, str(short_tmp / "orphan"), new_user(), str(ssh_key)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        device, *pids = process.stdout.readline().split()
        assert len(pids) > 10
        assert Path(f"/sys/class/net/{device}").exists()
        process.kill()
    wait_for(lambda: not [pid for pid in pids if _runs(pid)], "its processes gone")
    wait_for(lambda: not Path(f"/sys/class/net/{device}").exists(), "its cable gone")


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_far_site(new_ssh_site: Callable[..., Site]) -> None:
    site = new_ssh_site(way_in="code", nodes=1, round_trip=0.05)
    assert site.ssh("login", "hostname").stdout == "login1\n"
    assert not _reaches(site.logins["login1"].address)
