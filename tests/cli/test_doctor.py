"""Tests of ``jupyter slurm doctor``: real hosts, diagnosed from a laptop, with and without faults."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import Site, SshHost

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.root, pytest.mark.slow]

_TOOLS = (
    "cat chmod dd env flock getent grep head id kill ls ln mkdir mv od printenv printf ps python3 readlink rm rmdir "
    "sed setsid sh sleep stat tail touch uname wc bash"
).split()


@dataclass(frozen=True)
class Said:
    """Output and end of a command."""

    code: int
    text: str

    def lines(self, status: str) -> list[str]:
        """Return the findings with a status."""
        return [line[9:] for line in self.text.splitlines() if line.startswith(f"{status} ")]

    def todo(self, about: str) -> str:
        """Return the next step of a finding that failed or has a warning."""
        lines = self.text.splitlines()
        at = next(n for n, line in enumerate(lines) if line[9:].startswith(about) and not line.startswith("ok"))
        return next(line for line in lines[at:] if line.startswith("         -> "))[12:]


@pytest.fixture
def doctor(tmp_path: Path, own_agent: dict[str, str]) -> Callable[..., Said]:
    """Return ``doctor(profile, answer=None)``, which writes the profile ``far`` and diagnoses it."""

    def run(
        profile: str, answer: Callable[[], str] | None = None, name: str = "far", options: Sequence[str] = ()
    ) -> Said:
        (tmp_path / "sites").mkdir(exist_ok=True)
        (tmp_path / "sites" / "far.toml").write_text(profile)
        argv = [sys.executable, "-m", "jupyter_slurm.cli.main", "doctor", name, *options]
        said = _at_terminal(argv, own_agent, answer) if answer else _alone(argv, own_agent)
        _alone([*argv[:3], "agent", "stop"], own_agent)  # and thereby the login
        return said

    return run


def _alone(argv: list[str], env: dict[str, str]) -> Said:
    pipe: dict[str, int] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(argv, env=env, text=True, timeout=120, start_new_session=True, check=False, **pipe)
    return Said(done.returncode, done.stdout)


def _at_terminal(argv: list[str], env: dict[str, str], answer: Callable[[], str]) -> Said:
    main, terminal = pty.openpty()
    said, asked = b"", 0
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    with subprocess.Popen(argv, env=env, start_new_session=True, **streams) as process:
        os.close(terminal)
        while process.poll() is None or select.select([main], [], [], 0)[0]:
            try:
                if select.select([main], [], [], 0.2)[0]:
                    said += os.read(main, 4096)
            except OSError:
                break
            if said.count(b"erification code") + said.count(b"(yes/no") > asked:
                asked += 1
                os.write(main, answer().encode() + b"\n")
        process.wait(60)
    os.close(main)
    return Said(process.returncode, said.decode().replace("\r\n", "\n"))


def profile_of(ssh_config: Path, host: str = "login", more: str = "") -> str:
    return f'[login]\nhost = "{host}"\nssh_config = "{ssh_config}"\n{more}'


@pytest.mark.slurm
def test_everything_is_looked_at_and_one_code_is_asked_for(doctor: Callable[..., Said], ssh_site: Site) -> None:
    codes: list[str] = []

    def code() -> str:
        codes.append(ssh_site.codes.next())
        return codes[-1]

    said = doctor(profile_of(ssh_site.ssh_config), code)
    assert said.code == 0, said.text
    assert not said.lines("failed"), said.text
    assert len(codes) == 1
    assert codes[0] not in said.text
    found = [line.partition(": ")[0] for line in said.lines("ok") + said.lines("warning")]
    hops = [f"{host}, {step}" for host in ("gateway", "login") for step in ("reached", "host key", "login")]
    there = [
        "sessions",
        "shell",
        "SFTP",
        "Slurm",
        "controller",
        "nodes",
        "accounts",
        "partitions",
        "node access",
        "ports",
        "Python",
    ]
    assert [about for about in found if about != "job folder"] == ["profile", "way", *hops, *there]
    assert "job folder" in found
    assert "way: this computer -> gateway -> login" in said.text
    assert "partitions: main (default)" in said.text
    assert "nodes: 2 of 2 can start jobs" in said.text
    home = Path(f"~{ssh_site.user}").expanduser()
    assert list((home / ".local/share/jupyter_slurm/jobs/local").glob(".doctor*")) == [], "nothing is left there"


@pytest.mark.slurm
def test_who_declines_ends_it_at_the_log_in(doctor: Callable[..., Said], ssh_site: Site) -> None:
    said = doctor(profile_of(ssh_site.ssh_config))
    assert said.code == 1
    (failed,) = said.lines("failed")
    assert failed.startswith("gateway, login: The login to gateway")
    assert "not answered" in failed
    assert [line.partition(":")[0] for line in said.lines("ok")][-2:] == ["gateway, reached", "gateway, host key"]
    assert "cannot show a prompt" in said.text


@pytest.mark.slurm
def test_a_name_that_the_gateway_does_not_know(doctor: Callable[..., Said], ssh_site: Site) -> None:
    known = ssh_site.ssh_config
    said = doctor(profile_of(known, "ghost.invalid", 'jump = ["gateway"]\n'), ssh_site.codes.next)
    assert said.code == 1
    (failed,) = said.lines("failed")
    assert failed.startswith("ghost.invalid, reached: ")
    assert failed.endswith("cannot be reached: Connect failed."), "in the words of the host before it"
    assert "gateway may forward connections" in said.todo("ghost.invalid")
    assert any(line.startswith("gateway, login: ") for line in said.lines("ok"))


def test_a_name_that_nobody_knows(doctor: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host login\n    HostName nowhere.invalid\n")
    said = doctor(profile_of(tmp_path / "config"))
    assert said.code == 1
    (failed,) = said.lines("failed")
    assert failed.startswith("login, reached: ")
    assert "the name nowhere.invalid is unknown" in failed
    assert "Check the name of the host" in said.todo("login, reached")


_VPN = 'vpn = { name = "the VPN of the institute", url = "https://vpn.example.org/" }\n'
_ADVICE = "Connect to the VPN of the institute (https://vpn.example.org/), which this cluster needs, and try again."


@pytest.mark.parametrize("carrier", ["paramiko", "openssh"])
def test_a_missing_vpn_is_named_when_the_name_is_unknown(
    doctor: Callable[..., Said], own_agent: dict[str, str], tmp_path: Path, carrier: str
) -> None:
    (tmp_path / "config").write_text("Host login\n    HostName nowhere.invalid\n")
    more = f'carrier = "{carrier}"\n{_VPN}'
    said = doctor(profile_of(tmp_path / "config", more=more))
    advice = f"{_ADVICE} Tried to look up the name nowhere.invalid."
    assert (said.code, said.todo("login, reached")) == (1, advice), said.text
    command = [sys.executable, "-m", "jupyter_slurm.cli.main"]
    assert advice in _alone([*command, "connect", "far"], own_agent).text
    (tmp_path / "ready.toml").write_text((tmp_path / "sites" / "far.toml").read_text())
    words = ("init", "new", "--profile", str(tmp_path / "ready.toml"), "--user", "ana", "--key", "no")
    assert f"         -> {advice}" in _alone([*command, *words], own_agent).text


@pytest.mark.parametrize("carrier", ["paramiko", "openssh"])
def test_a_missing_vpn_is_named_in_a_network_without_a_route(
    own_agent: dict[str, str], tmp_path: Path, carrier: str
) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "config").write_text("")
    profile = profile_of(tmp_path / "config", "198.51.100.7", f'port = 2222\ncarrier = "{carrier}"\n{_VPN}')
    (tmp_path / "sites" / "far.toml").write_text(profile)
    said = _alone(["unshare", "--net", sys.executable, "-m", "jupyter_slurm.cli.main", "doctor", "far"], own_agent)
    advice = f"{_ADVICE} Tried to connect to 198.51.100.7, port 2222."
    assert (said.code, said.todo("198.51.100.7, reached")) == (1, advice), said.text


def test_a_vpn_is_not_named_when_the_host_answers(
    doctor: Callable[..., Said], ssh_host: Callable[..., SshHost]
) -> None:
    host = ssh_host(name="closed")
    host.stop()
    said = doctor(profile_of(host.ssh_config, "closed", _VPN))
    assert "connection refused" in said.lines("failed")[0]
    assert "VPN" not in said.text


def test_a_port_at_which_nobody_listens(doctor: Callable[..., Said], ssh_host: Callable[..., SshHost]) -> None:
    host = ssh_host(name="closed")
    host.stop()
    said = doctor(profile_of(host.ssh_config, "closed"))
    assert said.code == 1
    (failed,) = said.lines("failed")
    assert "connection refused" in failed
    assert "its port, 22" in said.todo("closed, reached")


def test_a_changed_key_comes_with_the_command_that_mends_it(
    doctor: Callable[..., Said], ssh_host: Callable[..., SshHost]
) -> None:
    host = ssh_host(name="changed")
    host.new_host_key()
    said = doctor(profile_of(host.ssh_config, "changed"))
    assert said.code == 1
    (failed,) = said.lines("failed")
    assert failed.startswith("changed, host key: The key of changed")
    command = said.todo("changed, host key").partition("forget its old key and connect again: ")[2]
    subprocess.run(shlex.split(command), check=True, capture_output=True, timeout=60)
    entry = host.ssh_config.read_text().replace("StrictHostKeyChecking yes", "StrictHostKeyChecking ask")
    host.ssh_config.write_text(entry)
    said = doctor(profile_of(host.ssh_config, "changed"), lambda: "yes")
    assert any(line.startswith("changed, host key: known (known_hosts from now on)") for line in said.lines("ok"))
    assert any(line.startswith("changed, login") for line in said.lines("ok")), said.text
    assert host.known_hosts_lines().split()[2] in host.known_hosts.read_text()


def test_slurm_that_only_a_login_shell_finds(
    doctor: Callable[..., Said], ssh_host: Callable[..., SshHost], short_tmp: Path
) -> None:
    """The other checks are made nevertheless, and so are those of an unusual server."""
    tools = short_tmp / "tools"
    tools.mkdir()
    for name in _TOOLS:
        for folder in ("/usr/bin", "/bin"):
            if os.path.exists(f"{folder}/{name}"):
                (tools / name).symlink_to(f"{folder}/{name}")
                break
    options = {"SetEnv": f"PATH={tools}", "MaxSessions": 2}
    host = ssh_host(name="bare", options=options, shared=[tools], sftp=False)
    said = doctor(profile_of(host.ssh_config, "bare"))
    assert said.code == 1
    assert said.lines("failed") == ["Slurm: sbatch is not on the PATH of the login node."], said.text
    assert "login_shell = true" in said.todo("Slurm")
    assert "sessions: 2 at once" in said.lines("ok")
    assert "SFTP: not available; files are sent through the shell" in said.lines("ok")
    assert any(line.startswith("job folder: ") for line in said.lines("ok") + said.lines("warning"))
    assert any(line.startswith("Python: 3.") for line in said.lines("ok"))
    assert not any(line.startswith("controller") for line in said.lines("ok"))


def test_a_home_with_little_space_is_reported(
    doctor: Callable[..., Said], ssh_host: Callable[..., SshHost], short_tmp: Path
) -> None:
    """The kernels of test machines have no quotas; a program in place of quota(1) prints what it would."""
    tools = short_tmp / "quotas"
    tools.mkdir()
    row = 'set -- $(df -Pk "$HOME" | tail -n 1); echo "$1 26000000 30000000 30000000 0 9 0 0 0"'
    (tools / "quota").write_text(f"#!/bin/sh\n{row}\n")
    (tools / "quota").chmod(0o755)
    host = ssh_host(name="small", options={"SetEnv": f"PATH={tools}:/usr/bin:/bin"}, shared=[tools])
    said = doctor(profile_of(host.ssh_config, "small"))
    (line,) = [line for line in said.lines("warning") if line.startswith("job folder: ")]
    assert line.endswith("can be written. Only 4.1 GB are left of your quota.")
    assert "`job_root` under [slurm]" in said.todo("job folder")


def test_start_up_files_that_print_and_take_long(
    doctor: Callable[..., Said], ssh_host: Callable[..., SshHost], new_user: Callable[..., str]
) -> None:
    user = new_user(files={".bashrc": "echo Welcome\nsleep 3.5\n"})
    host = ssh_host(name="noisy", users=[user], options={"MaxSessions": 1})
    said = doctor(profile_of(host.ssh_config, "noisy"))
    warnings = said.lines("warning")
    assert any(line.startswith("shell: its start-up files are slow") for line in warnings), said.text
    assert any(line.startswith("shell: start-up files print") and "Welcome" in line for line in warnings)
    assert any(line.startswith("sessions: the server allows one session") for line in warnings)
    assert any(line.startswith("Python: ") for line in said.lines("ok"))


@pytest.mark.parametrize(
    ("shell", "file", "advice"),
    [
        ("tcsh", ".cshrc", "Put `if (! $?prompt) exit` into ~/.cshrc or ~/.tcshrc"),
        ("zsh", ".zshenv", "from ~/.zshenv to ~/.zshrc"),
        ("fish", ".config/fish/config.fish", "in ~/.config/fish/config.fish"),
    ],
)
def test_the_advice_about_start_up_files_is_that_of_the_login_shell(
    doctor: Callable[..., Said],
    ssh_host: Callable[..., SshHost],
    new_user: Callable[..., str],
    shell: str,
    file: str,
    advice: str,
) -> None:
    host = ssh_host(name=f"of-{shell}", users=[new_user(shell=shell, files={file: "echo Welcome\n"})])
    said = doctor(profile_of(host.ssh_config, f"of-{shell}"))
    assert any(line.startswith("shell: start-up files print") and "Welcome" in line for line in said.lines("warning"))
    assert advice in said.todo("shell"), said.text
    assert "bashrc" not in said.text


def test_what_the_prelude_does_is_told(doctor: Callable[..., Said], ssh_host: Callable[..., SshHost]) -> None:
    """A prelude that fails, one that prints, one that ends the shell."""
    host = ssh_host(name="prelude")

    def look(prelude: str) -> Said:
        return doctor(profile_of(host.ssh_config, "prelude", f"[shell]\nprelude = '{prelude}'\n"))

    said = look("PATH=$PATH:/opt; modul load slurm")
    (warning,) = (line for line in said.lines("warning") if line.startswith("prelude"))
    assert "exit code 127" in warning
    assert "modul" in warning
    assert "`prelude` under [shell]" in said.todo("prelude")
    assert any(line.startswith("Python: ") for line in said.lines("ok")), "the rest is looked at"
    assert "prelude: it prints: hello" in look("echo hello >&2").lines("ok")
    (failed,) = look("echo no licence >&2; exit 3").lines("failed")
    assert "prelude ended the shell" in failed
    assert "no licence" in failed


def test_ports_that_are_taken(doctor: Callable[..., Said], ssh_host: Callable[..., SshHost]) -> None:
    host = ssh_host(name="portless")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = doctor(profile_of(host.ssh_config, "portless", f"[tunnels]\nports = [{port}, {port}]\n"))
        (failed,) = (line for line in said.lines("failed") if line.startswith("ports"))
        assert failed.endswith(f"none is free; taken: {port} by you")
        assert "ports = [FIRST, LAST]" in said.todo("ports")
    said = doctor(profile_of(host.ssh_config, "portless", f"[tunnels]\nports = [{port}, {port}]\n"))
    assert f"ports: {port} to {port} on this computer, for tunnels: {port} is free" in said.lines("ok")


def test_a_profile_that_cannot_be_used(doctor: Callable[..., Said]) -> None:
    said = doctor("[login]\n")
    assert said.code == 1
    assert [line.partition(":")[0] for line in said.lines("failed")] == ["profile"]
    said = doctor("[login]\n", name="other")
    assert said.code == 1
    assert "known: far" in said.text


@pytest.mark.slurm
def test_accounts_are_those_of_the_person(
    doctor: Callable[..., Said],
    accounting_cluster: EmbeddedCluster,
    ssh_host: Callable[..., SshHost],
    new_user: Callable[..., str],
    alice: str,
    short_tmp: Path,
) -> None:
    stranger = new_user()
    host = ssh_host(name="accounted", users=[alice, stranger], own_network=False, shared=[short_tmp])
    slurm = f'[slurm]\nconf = "{accounting_cluster.env()["SLURM_CONF"]}"\n'
    said = doctor(profile_of(host.ssh_config, "accounted", slurm))
    assert said.code == 0, said.text
    assert "accounts: c4ai" in said.lines("ok")
    assert any(line.startswith("partitions: ") for line in said.lines("ok"))
    said = doctor(profile_of(host.ssh_config, "accounted", slurm), options=["--submit", "--sbatch=-A nobodys"])
    assert "sbatch refused the test job" in said.text
    assert "`--sbatch='-A ACCOUNT'`. `sacctmgr show associations user=$USER` lists your accounts." in said.text
    assert "%" not in said.todo("test job")
    said = doctor(profile_of(host.ssh_config, "accounted", slurm), options=["--job"])
    assert said.text.count("Submit a test job to far") == 1, "nobody can answer: the question is in the error alone"
    said = doctor(profile_of(host.ssh_config, "accounted", f'user = "{stranger}"\n{slurm}'))
    assert said.code == 1
    assert f"accounts: {stranger} has none" in said.lines("failed"), said.text


@pytest.mark.slurm
def test_a_controller_that_is_down(doctor: Callable[..., Said], ssh_site: Site) -> None:
    ssh_site.slurm.stop_controller()
    try:
        said = doctor(profile_of(ssh_site.ssh_config), ssh_site.codes.next)
    finally:
        ssh_site.slurm.start_controller()
        ssh_site.slurm.wait_until_idle(2)
    assert said.code == 1
    (failed,) = said.lines("failed")
    assert failed.startswith("controller: Slurm does not answer")
    assert not any(line.startswith("partitions") for line in said.lines("ok"))
    assert any(line.startswith("Python: ") for line in said.lines("ok"))


@pytest.mark.slurm
def test_a_short_job_says_what_a_node_is_like(doctor: Callable[..., Said], ssh_site: Site) -> None:
    options = ["--submit", "--sbatch=--nodelist=node2 --comment='a b'"]
    said = doctor(profile_of(ssh_site.ssh_config), ssh_site.codes.next, options=options)
    assert said.code == 0, said.text
    found = dict(line.split(": ", 1) for line in said.lines("ok"))
    assert "answered on node2" in found["test job"]
    assert found["node2, home"].startswith(f"/home/{ssh_site.user} exists on the node")
    assert re.match(r"3\.\d+\.\d+ \(/.*python3\), with ", found["node2, Python"])
    assert "--gpus 1" in found["node2, GPUs"]
    assert found["node access"] == "node2 is reached by ssh"
    home = Path(f"~{ssh_site.user}").expanduser()
    assert list((home / ".local/share/jupyter_slurm/jobs/local").glob(".doctor*")) == [], "nothing is left there"
    left = ssh_site.slurm.run("squeue", "--noheader", "--name=jupyter-slurm-doctor", "--states=PD,R", "--format=%A")
    assert left.stdout == "", "and nothing runs on"


@pytest.mark.slurm
def test_no_job_is_submitted_without_a_yes(doctor: Callable[..., Said], ssh_site: Site) -> None:
    answers = iter([ssh_site.codes.next(), "no"])
    said = doctor(profile_of(ssh_site.ssh_config), lambda: next(answers), options=["--job"])
    assert "test job: not submitted" in said.lines("ok"), said.text
    refused = ["--submit", "--sbatch=-p nowhere"]
    said = doctor(profile_of(ssh_site.ssh_config), ssh_site.codes.next, options=refused)
    assert said.code == 1
    (failed,) = said.lines("failed")
    assert failed.startswith("test job: ")
    assert "invalid partition" in said.text
    assert doctor(profile_of(ssh_site.ssh_config), options=["--sbatch='"]).code == 1


@pytest.mark.slurm
def test_a_job_that_nobody_waits_for_any_more_goes(laptop: Any, ssh_site: Site, wait_for: Callable[..., Any]) -> None:
    laptop.knows(ssh_site)
    laptop.write("sites/far.toml", '[login]\nhost = "login"\n')
    dialogue = [("erification code", ssh_site.codes.next), ("yes/no.*yes\\]", ""), ("is submitted", "\x03")]
    said = laptop.slurm("doctor", "far", "--job", "--sbatch=--hold", dialogue=dialogue)
    assert said.code == 130, said.text
    question = ("squeue", "--noheader", "--name=jupyter-slurm-doctor", "--states=PD,R", "--format=%A")
    wait_for(lambda: ssh_site.slurm.run(*question).stdout == "", "the agent to cancel it")


@pytest.mark.slurm
def test_nodes_that_take_no_ssh(doctor: Callable[..., Said], new_ssh_site: Callable[..., Site]) -> None:
    site = new_ssh_site(nodes=1, node_options={"DenyUsers": "*"})
    said = doctor(profile_of(site.ssh_config), site.codes.next, options=["--submit"])
    assert said.code == 0, said.text
    (warning,) = (line for line in said.lines("warning") if line.startswith("node access"))
    assert warning == "node access: node1 is reached by a step of the job"
    assert "not by ssh: " in said.text
    assert "ssh-config" in said.todo("node access")
    job = site.slurm.run(
        "sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp", "--wrap=sleep 600", user=site.user
    )
    said = doctor(profile_of(site.ssh_config), site.codes.next)
    assert "node access: node1 is reached by a step of the job" in said.lines("warning"), "of a job that runs already"
    for ports, todo in (
        ("", "`node_ports = [FIRST, LAST]`"),
        ("node_ports = [20000, 20999]\n", "Sessions use a port of"),
    ):
        direct = f'\n[tunnels]\nways = ["ssh", "direct"]\n{ports}'
        said = doctor(profile_of(site.ssh_config) + direct, site.codes.next)
        assert todo in said.todo("node access")
    assert site.slurm.run("squeue", "--noheader", "--format=%A").stdout == job.stdout


@pytest.mark.slurm
def test_the_key_of_a_node_is_asked_about(laptop: Any, ssh_site: Site) -> None:
    laptop.knows(ssh_site)
    known = laptop.ssh / "known_hosts"
    lines = known.read_text().splitlines(keepends=True)
    laptop.write(".ssh/known_hosts", "".join(line for line in lines if not line.startswith("node")))
    config = laptop.ssh / "config"
    laptop.write(".ssh/config", config.read_text().replace("StrictHostKeyChecking yes", "StrictHostKeyChecking ask"))
    laptop.write("sites/far.toml", '[login]\nhost = "login"\n')
    code = ("erification code", ssh_site.codes.next)
    options = ("--submit", "--sbatch=--nodelist=node2")
    said = laptop.slurm("doctor", "far", *options, dialogue=[code, ("node2(.*\n)*.*remember this key", "no")])
    assert "warning  node access: node2 is reached by ssh from the login node" in said.text
    said = laptop.slurm("doctor", "far", *options, dialogue=[("node2(.*\n)*.*remember this key", "yes")])
    assert "ok       node access: node2 is reached by ssh" in said.text
    assert ssh_site.nodes["node2"].known_hosts_lines().split()[2] in known.read_text()


@pytest.mark.slurm
def test_a_log_in_of_openssh_is_the_one_that_notebooks_use(laptop: Any, ssh_site: Site) -> None:
    laptop.knows(ssh_site)
    laptop.write("sites/far.toml", '[login]\nhost = "login"\ncarrier = "openssh"\n')
    said = laptop.slurm("doctor", "far", "--submit", dialogue=[("erification code", ssh_site.codes.next)])
    assert said.code == 0, said.text
    assert re.search(r"ok +gateway, reached: gateway .* answers after", said.text)
    known = laptop.ssh / "known_hosts"
    for number, host in ((1, "gateway"), (3, "login")):
        assert f"{host}, host key: known ({known}, line {number}): ED25519 SHA256:" in said.text
    key = f"{ssh_site.user} is logged in by key {laptop.ssh / 'key'}"
    assert f"gateway, login: {key} and questions of the host (OpenSSH_" in said.text
    assert f"login, login: {key} (OpenSSH_" in said.text
    assert "is reached by ssh" in said.text
    assert laptop.printed("connect", "far").returncode == 0, "nobody is asked again"
    assert laptop.printed("disconnect", "far").returncode == 0
    declined = laptop.printed("doctor", "far")
    assert declined.returncode == 1
    assert "failed   gateway, login: " in declined.stdout
    assert "ok       gateway, host key: " in declined.stdout


@pytest.mark.slurm
@pytest.mark.parametrize("carrier", ["paramiko", "openssh"])
def test_one_log_in_serves_it_and_what_follows(laptop: Any, ssh_site: Site, carrier: str) -> None:
    laptop.knows(ssh_site)
    laptop.write("sites/far.toml", f'[login]\nhost = "login"\ncarrier = "{carrier}"\n')
    said = laptop.slurm("doctor", "far", dialogue=[("erification code", ssh_site.codes.next)])
    assert said.code == 0, said.text
    again = laptop.printed("doctor", "far")
    assert again.returncode == 0, "nobody is asked"
    assert "ok       login: that of 2" in again.stdout
    assert "ok       gateway, login: " in again.stdout, "what was found then"
    assert laptop.printed("jobs", "--cluster", "far").returncode == 0
    assert laptop.printed("disconnect", "far").returncode == 0


def test_openssh_says_at_which_host_it_ended(doctor: Callable[..., Said], tmp_path: Path) -> None:
    """Hosts that do not answer, or have an unknown name."""
    (tmp_path / "config").write_text("Host login\n    HostName nowhere.invalid\n")
    said = doctor(profile_of(tmp_path / "config", more='carrier = "openssh"\n'))
    (failed,) = said.lines("failed")
    assert failed.startswith("login, reached: ")
    assert "nowhere.invalid" in failed


@pytest.mark.slurm
def test_the_python_of_the_profile_is_looked_at(doctor: Callable[..., Said], ssh_site: Site) -> None:
    text = profile_of(ssh_site.ssh_config, more='[python]\npath = "/nowhere/python"\n')
    said = doctor(text, ssh_site.codes.next, options=["--submit"])
    assert "Python: the login node has no /nowhere/python; the nodes may have it" in said.lines("ok")
    assert any(
        "the Python of cells does not run on the node; there are python3 (" in line for line in said.lines("warning")
    )
