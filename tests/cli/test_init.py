"""``jupyter slurm init`` at a terminal: from nothing but a password to a cluster that can be used."""

from __future__ import annotations

import json
import os
import pty
import re
import secrets
import select
import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from ssh_hosts import SshHost

from jupyter_slurm.cli.init import host_names

Script = list[tuple[str, str]]


@pytest.fixture
def init(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """``init(dialogue, *words)``: answer questions in their order; return the exit code and all that was shown."""

    def run(dialogue: Script, *words: str) -> tuple[int, str]:
        settings = {"sites": [str(tmp_path / "sites")]}
        (tmp_path / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": settings}))
        env = {**os.environ, "JUPYTER_CONFIG_DIR": str(tmp_path)}
        env.pop("SSH_AUTH_SOCK", None)
        argv = [sys.executable, "-m", "jupyter_slurm.cli.main", "init", *words]
        main, terminal = pty.openpty()
        said, read, left = b"", 0, list(dialogue)
        command = ["setsid", "--ctty", "--wait", *argv]  # ssh-keygen asks at the controlling terminal
        with subprocess.Popen(command, env=env, stdin=terminal, stdout=terminal, stderr=terminal) as process:
            os.close(terminal)
            deadline = time.monotonic() + 60
            while (process.poll() is None and time.monotonic() < deadline) or select.select([main], [], [], 0)[0]:
                try:
                    if select.select([main], [], [], 0.2)[0]:
                        said = (said + os.read(main, 4096)).replace(b"\r\n", b"\n")
                except OSError:
                    break
                if left and (match := re.search(left[0][0].encode(), said[read:])):
                    read += match.end()
                    os.write(main, left.pop(0)[1].encode() + b"\n")
            if process.poll() is None:
                process.kill()
        os.close(main)
        text = said.decode()
        assert not left, f"never asked for {left[0][0]}:\n{text}"
        return process.returncode, text

    return run


def entry(host: SshHost, key: Path, known: Path) -> str:
    text = host.ssh_config.read_text().replace("StrictHostKeyChecking yes", "StrictHostKeyChecking ask")
    text = re.sub(r"IdentityFile .*", f"IdentityFile {key}", text)
    return re.sub(r"UserKnownHostsFile .*", f"UserKnownHostsFile {known}", text)


@pytest.mark.root
@pytest.mark.slow
def test_from_a_password_to_a_key(
    init: Callable[..., tuple[int, str]],
    ssh_host: Callable[..., SshHost],
    new_user: Callable[..., str],
    tmp_path: Path,
) -> None:
    password = secrets.token_hex(8)
    user = new_user(password=password)
    options = {"PasswordAuthentication": "yes", "UsePAM": "no"}
    host = ssh_host(name="far-host", users=[user], options=options)
    (host.etc / "authorized_keys.d" / user).unlink()
    key, known = tmp_path / "keys" / "id_ed25519", tmp_path / "known_hosts"
    (tmp_path / "config").write_text(entry(host, key, known))
    passphrase = secrets.token_hex(4)
    begin: Script = [
        ("Name of the cluster", "lo cal"),
        ("letters, digits.*\n.*Name of the cluster", "far"),
        ("1  far-host\n.*Login node", "1"),
        ("Your user name there", ""),
        ("Hosts on the way", ""),
    ]
    make: Script = [
        (r"Make one .*yes\]", ""),
        ("Enter passphrase", passphrase),
        ("Enter same passphrase again", passphrase),
    ]
    let_in: Script = [("from now on\\?", "yes"), ("remember this key", "yes"), ("Password for", password)]
    code, said = init(
        [*begin, *make, *let_in, ("Passphrase for", passphrase)], "--ssh-config", str(tmp_path / "config")
    )
    assert password not in said
    assert passphrase not in said
    assert "far-host lets it in from now on" in said
    assert f"far-host, log-in: {user} is let in" in said, "doctor comes in by the key"
    assert code in (0, 1)  # there is no Slurm behind this host, or none that answers
    profile = tmp_path / "sites" / "far.toml"
    assert tomllib.loads(profile.read_text()) == {"login": {"host": "far-host", "ssh_config": str(tmp_path / "config")}}
    keys = Path(f"~{user}/.ssh/authorized_keys").expanduser()
    assert keys.read_text() == key.with_suffix(".pub").read_text()
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.stat().st_mode) == 0o600

    # Once more: the profile is not touched without a yes, and the key is not there twice, whatever is before it.
    profile.write_text("# mine\n[login]\nhost = 'far-host'\n")
    code, said = init([("Write it anew", "")], "far")
    assert code == 1
    assert profile.read_text().startswith("# mine")
    keys.write_text(f"#{keys.read_text()}ssh-rsa AAAA other")
    again: Script = [("Write it anew", "yes"), *begin[2:], let_in[0], let_in[2]]
    _, said = init([*again, ("Passphrase for", passphrase)], "far", "--ssh-config", str(tmp_path / "config"))
    assert "lets it in from now on" in said
    assert keys.read_text().splitlines()[1:] == ["ssh-rsa AAAA other", key.with_suffix(".pub").read_text().strip()]
    again = [("Write it anew", "yes"), *begin[2:], let_in[0], ("Passphrase for", passphrase)]
    _, said = init([*again, ("Passphrase for", passphrase)], "far", "--ssh-config", str(tmp_path / "config"))
    assert "far-host knows it" in said
    assert len(keys.read_text().splitlines()) == 3


def test_what_is_typed_becomes_a_profile(init: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host *.invalid\n    IdentityFile none\n")
    dialogue: Script = [
        ("Login node \\(host name\\)", "-oProxyCommand=x"),
        ("host.*\n.*Login node", "login.invalid"),
        ("Your user name there", "a b"),
        ("user.*\n.*Your user name", "ana"),
        ("Hosts on the way", "first.invalid ana@second.invalid"),
    ]
    code, said = init(dialogue, "far", "--ssh-config", str(tmp_path / "config"))
    assert code == 1
    assert "first.invalid, reached: " in said, "doctor looked it over"
    jump = ["first.invalid", "ana@second.invalid"]
    login = {"host": "login.invalid", "user": "ana", "jump": jump, "ssh_config": str(tmp_path / "config")}
    written = tmp_path / "sites" / "far.toml"
    assert tomllib.loads(written.read_text()) == {"login": login}
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


def test_nobody_is_there(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "jupyter_slurm.cli.main", "init", "far"]
    env = {**os.environ, "JUPYTER_CONFIG_DIR": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(
        argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "in a terminal" in done.stderr
    assert not (tmp_path / "jupyter_slurm").exists()


def test_hosts_are_those_that_the_configuration_names(tmp_path: Path) -> None:
    (tmp_path / "more").write_text('host=arandu "gate way"\nHost !not *.example.org one?\n')
    text = f"Host a b # c\n  HostName x\nInclude {tmp_path}/more {tmp_path}/config\nMatch host y\nHost a *\n"
    (tmp_path / "config").write_text(text)
    assert host_names(str(tmp_path / "config")) == ["a", "b", "arandu", "gate way"]
    assert host_names(str(tmp_path / "none")) == []
