"""Tests of ``jupyter slurm ssh-config``: real ssh and rsync from a laptop to the node of a running job."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import Site

from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import ConfigError
from jupyter_slurm.services.tunnels.ssh_config import (
    SshConfigEntry,
    SshConfigFiles,
    config_text,
    entry_for,
    parse_entries,
    with_include,
)
from jupyter_slurm.sites.profile import Profile
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig

CODE = r"erification code: *"


@pytest.fixture
def start(ssh_site: Site, wait_for: Callable[..., Any]) -> Iterator[Callable[..., str]]:
    """Return ``start("--nodes=2")``, which runs a job of the site's user and returns its id."""
    made: list[str] = []

    def submit(*options: str) -> str:
        argv = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp", *options, "--wrap=sleep 600")
        job = ssh_site.slurm.run(*argv, user=ssh_site.user).stdout.strip()
        made.append(job)
        question = ("squeue", "--noheader", f"--jobs={job}", "--format=%T")
        wait_for(lambda: ssh_site.slurm.run(*question).stdout.strip() == "RUNNING", "the job to run")
        return job

    yield submit
    ssh_site.slurm.run("scancel", *made, check=False)


@pytest.mark.slurm
@pytest.mark.root
@pytest.mark.slow
def test_ssh_and_rsync_reach_the_node_of_a_job(
    laptop: Any, ssh_site: Site, start: Callable[..., str], wait_for: Callable[..., Any]
) -> None:
    laptop.knows(ssh_site)
    laptop.write("sites/far.toml", '[login]\nhost = "login"\n')
    job = start("--nodelist=node2")
    code = (CODE, ssh_site.codes.next)
    said = laptop.slurm(
        "ssh-config", job, "--cluster", "far", "--write", dialogue=[code, ("at the top of .*yes\\]", "")]
    )
    assert said.code == 0, said.text
    ours, config = laptop.ssh / "jupyter_slurm.conf", laptop.ssh / "config"
    assert stat.S_IMODE(ours.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert config.read_text().startswith("Include jupyter_slurm.conf\n\nHost gateway\n")
    assert "StrictHostKeyChecking no" not in ours.read_text()
    assert "ProxyJump login\n" in ours.read_text()
    name = f"far-{job}"
    done = laptop.at_terminal("ssh", name, "hostname; id -un", dialogue=[code])
    assert f"node2\n{ssh_site.user}\n" in done.text.replace("\r", "")
    laptop.write("sent", "by rsync\n")
    copied = laptop.at_terminal(
        "rsync", "-e", "ssh", str(laptop.home / "sent"), f"{name}-node2:from-laptop", dialogue=[code]
    )
    assert copied.code == 0, copied.text
    assert Path(f"~{ssh_site.user}/from-laptop").expanduser().read_text() == "by rsync\n"

    # Another job, and a second run: one file, included once, and one login.
    both = start("--nodes=2")
    said = laptop.slurm("ssh-config", both, "--cluster", "far", "--write")
    assert said.code == 0, said.text
    assert config.read_text().count("Include") == 1
    hosts = [line for line in ours.read_text().splitlines() if line.startswith("Host ")]
    assert hosts == [
        f"Host far-{both} far-{both}-node1 far-node1",
        f"Host far-{both}-node2 far-node2",
        f"Host {name} {name}-node2 far-node2",
    ]
    ssh_site.slurm.run("scancel", job)

    def is_taken_out() -> bool:
        return f"Removed: {name}\n" in laptop.slurm("ssh-config", "--cluster", "far", "--write").text

    wait_for(is_taken_out, "the end of the job to be seen", timeout=120, interval=1)
    assert name not in ours.read_text()
    assert f"far-{both} " in ours.read_text()
    over = laptop.printed("ssh-config", job, "--cluster", "far")
    assert over.returncode == 1
    assert f"Job {job} is not on a node" in over.stderr
    assert laptop.printed("ssh-config", "--node", "nowhere", "--cluster", "far").returncode == 1
    assert "Host far-node1\n" in laptop.printed("ssh-config", "--node", "node1", "--cluster", "far").stdout


@pytest.mark.slurm
@pytest.mark.root
@pytest.mark.slow
def test_what_is_printed_is_a_file_for_ssh(laptop: Any, ssh_site: Site, start: Callable[..., str]) -> None:
    """A profile with its own SSH configuration: the route uses that file, wherever the entry stands."""
    laptop.knows(ssh_site)
    own = laptop.write("other/config", (laptop.ssh / "config").read_text())
    (laptop.ssh / "config").unlink()
    laptop.write("sites/far.toml", f'[login]\nhost = "login"\nssh_config = "{own}"\n')
    job = start()
    code = (CODE, ssh_site.codes.next)
    assert laptop.slurm("connect", "far", dialogue=[code]).code == 0
    printed = laptop.printed("ssh-config", job, "--cluster", "far")
    assert printed.returncode == 0, printed.stderr
    assert "jupyter slurm tunnel" in printed.stderr, "what to do where nodes take no ssh"
    entry = laptop.write("entry", printed.stdout)
    done = laptop.at_terminal("ssh", "-F", str(entry), f"far-{job}", "hostname", dialogue=[code])
    assert set(done.text.split()) & set(ssh_site.nodes), done.text  # ssh may print more at the end of its connection
    assert not (laptop.ssh / "jupyter_slurm.conf").exists()
    # Without an interactive user nothing is changed, and the command prints the needed lines.
    written = laptop.printed("ssh-config", job, "--cluster", "far", "--write")
    assert written.returncode == 0
    assert "Include jupyter_slurm.conf" in written.stderr
    assert not (laptop.ssh / "config").exists()
    assert laptop.printed("ssh-config", job, "--cluster", "far", "--write", "--yes").returncode == 0
    assert (laptop.ssh / "config").read_text() == "Include jupyter_slurm.conf\n\n"


@pytest.mark.slurm
@pytest.mark.root
@pytest.mark.slow
def test_a_log_in_that_openssh_keeps_leads_on_to_the_node(
    laptop: Any, ssh_site: Site, start: Callable[..., str]
) -> None:
    laptop.knows(ssh_site)
    laptop.write("sites/far.toml", '[login]\nhost = "login"\ncarrier = "openssh"\n')
    job, code = start(), (CODE, ssh_site.codes.next)
    said = laptop.slurm("ssh-config", job, "--cluster", "far", "--write", "--yes", dialogue=[code])
    assert said.code == 0, said.text
    done = laptop.at_terminal("ssh", f"far-{job}", "hostname")
    assert done.text.split()[-1:] in (["node1"], ["node2"]), done.text
    assert "code" not in done.text, "nobody was asked"
    assert laptop.printed("disconnect", "far").returncode == 0
    done = laptop.at_terminal("ssh", f"far-{job}", "hostname", dialogue=[code])
    assert {"node1", "node2"} & set(done.text.split()), done.text  # ssh may say that the proxy ended first


@pytest.mark.slurm
@pytest.mark.root
@pytest.mark.slow
def test_on_the_cluster_itself_nothing_is_between(
    laptop: Any, new_cluster: Callable[..., EmbeddedCluster], wait_for: Callable[..., Any]
) -> None:
    cluster = new_cluster()
    laptop.environment["SLURM_CONF"] = str(cluster.slurm_conf)
    laptop.write(".ssh/config", "# mine\r\nHost x\r\n  User \xff\r\n")
    before = (laptop.ssh / "config").read_bytes()
    argv = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", "--wrap=sleep 600")
    job = laptop.at_terminal(*argv).text.strip()
    question = ("squeue", "--noheader", f"--jobs={job}", "--format=%T")
    wait_for(lambda: laptop.at_terminal(*question).text.strip() == "RUNNING", "the job to run")
    written = laptop.printed("ssh-config", job, "--write", "--yes")
    assert written.returncode == 0, written.stderr
    assert (laptop.ssh / "config").read_bytes() == b"Include jupyter_slurm.conf\n\n" + before
    text = (laptop.ssh / "jupyter_slurm.conf").read_text()
    assert "Proxy" not in text
    assert "    HostKeyAlias c4aiscw" in text
    assert f"-{job} " in text
    asked = laptop.at_terminal("ssh", "-G", text.split("Host ")[1].split()[0]).text
    assert "hostkeyalias c4aiscw" in asked
    # Other users' files: an unwritable file causes an error.
    (laptop.ssh / "jupyter_slurm.conf").write_text("")
    laptop.ssh.chmod(0o500)
    refused = laptop.printed("ssh-config", job, "--write")
    laptop.ssh.chmod(0o700)
    assert refused.returncode == 1
    assert "cannot be written" in refused.stderr


def entry(profile: Profile | None = None, **changes: Any) -> str:
    place = SshConfigFiles("node1", "10.0.0.1", "12", 1_700_000_000)
    login = HostConfig("login", "login.example", user="ana", user_known_hosts=("/k",), global_known_hosts=())
    return entry_for("far", place, profile or Profile("far", "login", **changes), login).text


def test_the_way_is_that_of_the_profile() -> None:
    assert "    ProxyJump login\n" in entry()
    assert "    ProxyJump one,ana@two:2222,bob@login:2022\n" in entry(
        jump=("one", "ana@two:2222"), user="bob", port=2022
    )
    assert "    ProxyJump ana@[fe80::1%%eth0]\n" in entry(Profile("far", "ana@fe80::1%eth0"))
    assert "    ProxyCommand ssh -W '[%h]:%p' -J none -- login\n" in entry(jump=())
    assert "    ProxyCommand ssh -W '[%h]:%p' -F '/a b/100%%' -l bob -p 22 -J one -- login\n" in entry(
        ssh_config="/a b/100%", user="bob", port=22, jump=("one",)
    )
    login = HostConfig("login", "login", user="ana")
    through = entry_for("far", SshConfigFiles("a", "a"), Profile("far", "login"), login, "/run/user/1/a b").text
    assert "    ProxyCommand ssh -W '[%h]:%p' -S '/run/user/1/a b' -- login\n" in through
    text = entry()
    assert "    HostName 10.0.0.1\n    HostKeyAlias far-node1\n    User ana\n" in text
    assert "    UserKnownHostsFile /k\n    GlobalKnownHostsFile none\n" in text
    assert "Proxy" not in entry_for("local", SshConfigFiles("node1", "node1"), None, None).text


def test_two_clusters_may_have_nodes_of_one_name(tmp_path: Path) -> None:
    """If only a list of the administrators counts, the name in that list is used."""
    known = tmp_path / "known"
    known.write_text(f"node1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{43 * 'A'}\n")
    place = SshConfigFiles("node1", "10.0.0.1")
    for strict, alias in (("ask", "far-node1"), ("yes", "node1")):
        login = HostConfig("login", "login", user="ana", user_known_hosts=(str(known),), strict=strict)
        assert f"HostKeyAlias {alias}\n" in entry_for("far", place, Profile("far", "login"), login).text
    known.write_text(known.read_text() * 2 + known.read_text().replace("node1", "far-NODE1"))
    assert "HostKeyAlias far-node1\n" in entry_for("far", place, Profile("far", "login"), login).text
    assert "HostKeyAlias node1\n" in entry_for("local", place, None, None).text


@pytest.mark.parametrize(
    "place",
    [
        SshConfigFiles("a\nHost *\n  ProxyCommand touch x", "a"),
        SshConfigFiles("a", "a\n    ProxyCommand x"),
        SshConfigFiles("a", "%h"),
        SshConfigFiles("-oProxyCommand=x", "a"),
        SshConfigFiles("*", "a"),
        SshConfigFiles("a", "a", "12 *"),
        SshConfigFiles("a", "a b"),
        SshConfigFiles("", ""),
    ],
)
def test_names_from_outside_begin_no_line_and_no_pattern(place: SshConfigFiles) -> None:
    with pytest.raises(ConfigError):
        entry_for("far", place, None, None)


@pytest.mark.parametrize("path", ["/a\nProxyCommand x", '/a"b', "/${HOME}/k", "/a\x1bb"])
def test_paths_that_cannot_be_written_are_refused(path: str, tmp_path: Path) -> None:
    login = HostConfig("login", "login", user="ana", user_known_hosts=(path,))
    with pytest.raises(ConfigError):
        entry_for("far", SshConfigFiles("a", "a"), Profile("far", "login"), login)


@pytest.mark.parametrize(
    "user",
    [
        *("ana\nProxyCommand x", "ana\u2028# cluster=a job=- submitted=0 node=b", "ana\x85x", 'a"b', "a b", "a'b"),
        *("-oProxyCommand=x", "$(touch x)", "`x`", "a;x", "a|x", "%h", "${HOME}", ""),
    ],
)
def test_a_user_that_a_cluster_names_begins_no_line_and_no_command(user: str) -> None:
    """A ``Match exec`` of the user's own configuration may hand it to a shell, as ``%r``."""
    with pytest.raises(ConfigError):
        entry_for("far", SshConfigFiles("a", "a"), Profile("far", "login"), HostConfig("login", "login", user=user))


def test_keys_of_the_login_node_open_the_node(tmp_path: Path) -> None:
    key = tmp_path / "my key 100%"
    key.touch()
    login = HostConfig("login", "x", user="ana", identity_files=(str(key), "/nowhere/id"), identities_only=True)
    text = entry_for("far", SshConfigFiles("a", "a"), Profile("far", "login"), login).text
    assert f'    IdentityFile "{str(key).replace("%", "%%")}"\n    IdentitiesOnly yes\n' in text
    assert "/nowhere" not in text


def test_the_file_is_read_as_it_was_written() -> None:
    entries = [entry_for("far", SshConfigFiles(f"n{n}", "a", "12_3", n, n == 1), None, None) for n in (1, 2)]
    entries.append(entry_for("lo-cal.1", SshConfigFiles("n3", "a"), None, None))
    assert parse_entries(config_text(entries)) == entries
    assert parse_entries("Host x\n  Port 1\n# cluster=far job=* submitted=1 node=n\nHost y\n") == []
    assert parse_entries("") == []
    odd = SshConfigEntry("far", "", 0, "n", 'Host n\n    IdentityFile "a\x0cb\u2028# c"\n')  # of an older version
    assert parse_entries(config_text([odd])) == [odd]


@pytest.mark.parametrize(
    ("text", "is_there"),
    [
        ("", False),
        ("# Include jupyter_slurm.conf\nHost a\n", False),
        ("Host a\n    Include jupyter_slurm.conf\n", False),
        ("match all\ninclude jupyter_slurm.conf\n", False),
        ("User x\ninclude=other ~/.ssh/jupyter_slurm.conf\nHost a\n", True),
        (f'Include "{os.sep}home/x/.ssh/jupyter_slurm.conf"\n', True),
    ],
)
def test_the_file_is_included_once_and_for_all_hosts(text: str, is_there: bool) -> None:
    found = with_include(text)
    assert (found is None) == is_there
    if found is not None:
        assert found == f"Include jupyter_slurm.conf\n\n{text}"
        assert with_include(found) is None
