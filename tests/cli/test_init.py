"""Tests of ``jupyter slurm init`` at a terminal: from only a password to a usable cluster."""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import Site, SshHost
from ssh_hosts.people import People
from ssh_hosts.terminal import Said, converse

from jupyter_slurm.cli.arguments.ssh_hosts import host_names

Script = list[tuple[str, Any]]


@pytest.fixture
def init(own_agent: dict[str, str]) -> Callable[..., Said]:
    """Return ``init(dialogue, *words)``, which answers questions in their order and returns the output."""

    def run(dialogue: Script, *words: str) -> Said:
        argv = [sys.executable, "-m", "jupyter_slurm.cli.main", "init", *words]
        # ssh-keygen asks at the controlling terminal
        return converse(["setsid", "--ctty", "--wait", *argv], own_agent, dialogue, timeout=60)

    return run


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.slurm
def test_from_nothing_to_jobs(laptop: Any, new_ssh_site: Callable[..., Site]) -> None:
    """Five questions, beside those of ssh-keygen and the hosts: no ~/.ssh, no key, a gateway and a password."""
    by_password = {"PasswordAuthentication": "yes", "UsePAM": "no", "AuthenticationMethods": "any"}
    site = new_ssh_site(nodes=1, gateway_options=by_password, login_options=by_password)
    for host in (site.gateway, *site.logins.values()):
        (host.etc / "authorized_keys.d" / site.user).unlink()
    passphrase = secrets.token_hex(4)
    gateway = site.gateway.address
    dialogue: Script = [
        ("Name of the cluster", "far"),
        (r"Login node \(host name\)", "login"),
        ("Your user name on the cluster", site.user),
        ("Jump hosts", gateway),
        (rf"Create one .*, and copy the public key to {gateway} and login.*yes\]", ""),
        ("Enter passphrase", passphrase),
        ("Enter same passphrase again", passphrase),
        *[("remember this key", ""), ("Type yes, no", "yes"), ("Password for", site.password)] * 2,
    ]
    said = laptop.slurm("init", dialogue=dialogue, timeout=150)
    assert said.code == 0, said.text
    assert site.password not in said.text
    assert passphrase not in said.text
    assert said.text.index("Choose a passphrase for the key") < said.text.index("Enter passphrase")
    assert f"Your public key was added on {gateway}." in said.text
    assert "Your public key is on login" in said.text, "homes are shared here"
    key = laptop.ssh / "id_ed25519"
    assert laptop.printed("jobs", "--cluster", "far").returncode == 0, "that log-in serves what follows"
    laptop.printed("disconnect", "far")
    again = laptop.slurm("doctor", "far", dialogue=[("Passphrase for", passphrase)] * 2)
    for host in (gateway, "login"):
        assert f"{host}, login: {site.user} is logged in by key {key}" in again.text
    jump = [f"{site.user}@{gateway}"]
    written = tomllib.loads((laptop.home / "sites" / "far.toml").read_text())
    assert written == {"login": {"host": "login", "user": site.user, "jump": jump}}
    keys = Path(f"~{site.user}/.ssh/authorized_keys").expanduser()
    assert keys.read_text() == (laptop.ssh / "id_ed25519.pub").read_text()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (keys, key, laptop.ssh)] == [0o600, 0o600, 0o700]


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.slurm
def test_who_has_all_of_it_answers_three_questions_and_the_host(laptop: Any, ssh_site: Site) -> None:
    laptop.knows(ssh_site)
    dialogue: Script = [
        ("Name of the cluster", "far"),
        ("2  login\n(.*\n)*Login node", "2"),
        (f"Connection: this computer -> {ssh_site.user}@gateway -> {ssh_site.user}@login\nIs this correct.*yes\\]", ""),
        ("erification code", ssh_site.codes.next),
    ]
    said = laptop.slurm("init", dialogue=dialogue)
    assert said.code == 0, said.text
    assert said.text.count("erification code") == 1
    after = [laptop.printed(*words).returncode for words in (("doctor", "far"), ("connect", "far"))]
    assert after == [0, 0], "one code serves all of it"
    assert "(yes/no)" not in said.text.partition("Is this correct")[2].partition("\n")[2], "nobody is offered a key"
    assert tomllib.loads((laptop.home / "sites" / "far.toml").read_text()) == {"login": {"host": "login"}}


@pytest.mark.root
@pytest.mark.slow
def test_hosts_that_lack_the_key_are_asked_about_one_by_one(
    laptop: Any, new_ssh_site: Callable[..., Site], new_user: Callable[..., str]
) -> None:
    """A host that runs no command gets no key; the other one has the key at the end, once."""
    by_password = {"PasswordAuthentication": "yes", "UsePAM": "no", "AuthenticationMethods": "any"}
    site = new_ssh_site(
        nodes=1, gateway_options={**by_password, "ForceCommand": "/bin/false"}, login_options=by_password
    )
    for host in (site.gateway, *site.logins.values()):
        (host.etc / "authorized_keys.d" / site.user).unlink()
    laptop.knows(site)
    keys = People.write(site.user, ".ssh/authorized_keys", f"#{(laptop.ssh / 'key.pub').read_text()}ssh-rsa AAAA x")
    passwords: Script = [("Password for", site.password)] * 2
    offers: Script = [
        ("Copy your public key .* to gateway.*yes\\]", ""),
        ("Copy your public key .* to login.*yes\\]", "yes"),
    ]
    options = ("--host", "login", "--jump", "gateway", "--user", site.user)
    said = laptop.slurm("init", "far", *options, dialogue=[*passwords, *offers])
    assert "The key was not copied to gateway." in said.text
    assert "Your public key was added on login." in said.text
    assert keys.read_text().splitlines()[1:] == ["ssh-rsa AAAA x", (laptop.ssh / "key.pub").read_text().strip()]

    # A second run: the file has the key, but others may write to it, so that sshd refuses it.
    keys.chmod(0o666)
    again: Script = [("Overwrite it.*no\\]", "Y"), ("Is this correct.*yes\\]", "y"), *passwords]
    again += [("Copy your public key .* to gateway", "no"), offers[1]]
    said = laptop.slurm("init", "far", "--host", "login", dialogue=again)
    assert "login has the key and refuses it" in said.text
    assert len(keys.read_text().splitlines()) == 3
    said = laptop.slurm("init", "far", dialogue=[("Overwrite it.*no\\]", "")])
    assert said.code == 1
    assert "Kept " in said.text


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("wish", [(), ("--key", "yes", "--no-passphrase")])
def test_no_key_is_created_for_a_host_that_takes_none(
    laptop: Any, ssh_host: Callable[..., SshHost], wish: tuple[str, ...]
) -> None:
    options = {"PubkeyAuthentication": "no", "PasswordAuthentication": "yes", "UsePAM": "no"}
    host = ssh_host(name="far-host", options={**options, "AuthenticationMethods": "any"})
    laptop.write(".ssh/known_hosts", host.known_hosts_lines())
    words = ("init", "far", "--host", host.address, "--user", host.user, "--jump", "none", *wish)
    said = laptop.slurm(*words, dialogue=[("Password for", "wrong")] * 3)
    assert f"{host.address} takes no SSH keys. It offers: password" in said.text
    assert "Create one" not in said.text
    assert not (laptop.ssh / "id_ed25519").exists()


@pytest.mark.root
@pytest.mark.slow
def test_all_answers_can_be_options(laptop: Any, ssh_host: Callable[..., SshHost]) -> None:
    host = ssh_host(name="far-host")
    laptop.write(".ssh/known_hosts", host.known_hosts_lines())
    argv = ("init", "far", "--host", host.address, "--user", host.user, "--jump", "none")
    done = laptop.printed(*argv, "--key", "yes", "--no-passphrase")
    assert done.returncode == 1
    assert "Host key" not in done.stdout
    assert f"as {host.user} failed" in done.stdout, "it takes keys only, and does not know this one"
    assert "Then run the same command again." in done.stdout
    key = laptop.ssh / "id_ed25519"
    made = key.read_bytes()
    host.authorize(host.user, key.with_suffix(".pub").read_text())
    done = laptop.printed(*argv)
    assert "its content is the same" in done.stdout, "the same command again, when the site has added the key"
    assert f"login: {host.user} is logged in by key {key}" in done.stdout
    refused = laptop.printed(*argv[:-1], "gate.invalid")
    assert refused.returncode == 1
    assert "There is no terminal to ask this question: " in refused.stderr
    assert "exists. Overwrite it (as --overwrite does)" in refused.stderr
    done = laptop.printed(*argv, "--overwrite", "--yes")
    assert f"login: {host.user} is logged in by key {key}" in done.stdout
    assert key.read_bytes() == made
    login = {"host": host.address, "user": host.user}
    assert tomllib.loads((laptop.home / "sites" / "far.toml").read_text()) == {"login": login}
    wrong = laptop.printed("init", "other", "--host=-x", "--yes")
    assert wrong.returncode == 1
    assert "--host -x cannot be used" in wrong.stderr


@pytest.mark.root
@pytest.mark.slow
def test_no_key_is_created_for_a_host_that_is_not_reached_or_not_known(
    laptop: Any, ssh_host: Callable[..., SshHost]
) -> None:
    host = ssh_host(name="far-host")
    argv = ("init", "far", "--user", host.user, "--jump", "none", "--yes")
    unreached = laptop.printed(*argv, "--host", "host.invalid")
    assert "host.invalid does not answer. No SSH key was created." in unreached.stdout
    unknown = laptop.printed(*argv, "--host", host.address, "--overwrite")
    assert f"{host.address} has a host key that is not known yet. No SSH key was created." in unknown.stdout
    assert not (laptop.ssh / "id_ed25519").exists()
    laptop.write(".ssh/known_hosts", host.known_hosts_lines())
    made = laptop.printed(*argv, "--host", host.address, "--overwrite")
    assert "The key has no passphrase: anyone who gets the file can use it." in made.stdout
    assert (laptop.ssh / "id_ed25519").exists()


_READY = """# Ours
title = "Far away"

[login]  # the way
host = "login.invalid"
jump = [
    "known", "gate.invalid",
]

[shell]
prelude = "module load slurm"
"""


def test_a_ready_made_profile_gets_only_the_name_of_the_person(init: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host known\n    HostName known.invalid\n    IdentityFile none\n")
    ready = _READY.replace("# the way", f'# the way\nssh_config = "{tmp_path}/config"')
    (tmp_path / "far.toml").write_text(ready)
    dialogue: Script = [("Your user name on login.invalid", "a b"), ("user .*\n.*Your user name", "ana")]
    said = init(dialogue, "--profile", str(tmp_path / "far.toml"), "--key", "no")
    assert said.code == 1
    assert "This profile runs on login.invalid before every command:\n    module load slurm\n" in said.text
    written = (tmp_path / "sites" / "far.toml").read_text()
    expected = tomllib.loads(ready)
    expected["login"] |= {"user": "ana", "jump": ["known", "ana@gate.invalid"]}
    assert tomllib.loads(written) == expected
    assert written.startswith('# Ours\ntitle = "Far away"\n\n[login]  # the way\nuser = "ana"\n')
    said = init([("exists. Overwrite it", "no")], "--profile", str(tmp_path / "far.toml"), "--user", "eva")
    assert said.code == 1
    assert (tmp_path / "sites" / "far.toml").read_text() == written
    said = init([], "--profile", str(tmp_path / "none.toml"))
    assert said.code == 1
    assert "No such file" in said.text
    (tmp_path / "odd.toml").write_text('login = {host = "login.invalid"}\n')
    said = init([], "odd", "--profile", str(tmp_path / "odd.toml"), "--user", "ana")
    assert "`user` cannot be written into" in said.text
    assert not (tmp_path / "sites" / "odd.toml").exists()


def _login_of(tmp_path: Path, name: str) -> tuple[str | None, dict[str, Any]]:
    profile = tomllib.loads((tmp_path / "sites" / f"{name}.toml").read_text())
    return profile.get("extends"), profile["login"]


@pytest.mark.parametrize(
    ("words", "name", "extends", "login"),
    [
        (("unipi", "--host", "login.invalid"), "unipi", "unipi", {"host": "login.invalid", "user": "ana"}),
        (("hpc2019", "--host", "login.invalid"), "hpc2019", "unipi", {"host": "login.invalid", "user": "ana"}),
        (
            ("aau-aicloud", "--jump", "none", "--host", "login.invalid"),
            "aau-aicloud",
            "aau-aicloud",
            {"host": "login.invalid", "user": "ana", "jump": []},
        ),
        (
            ("aau", "--profile", "aau-aicloud", "--jump", "a.invalid,eva@b.invalid"),
            "aau",
            "aau-aicloud",
            {"user": "ana", "jump": ["ana@a.invalid", "eva@b.invalid"]},
        ),
        (
            ("aau", "--profile", "aau-aicloud", "--jump", "plain.invalid,named.invalid"),
            "aau",
            "aau-aicloud",
            {"user": "ana", "jump": ["ana@plain.invalid", "named.invalid"]},
        ),
        (("arandu", "--profile", "none", "--host", "login.invalid"), "arandu", None, {"host": "login.invalid"}),
    ],
)
def test_a_built_in_profile_gets_the_options_of_the_login(
    init: Callable[..., Said], tmp_path: Path, words: tuple[str, ...], name: str, extends: str, login: dict[str, Any]
) -> None:
    config = tmp_path / "config"
    config.write_text("Host plain.invalid\n    ForwardAgent no\nHost named.invalid\n    User eva\n")
    said = init([], *words, "--user", "ana", "--ssh-config", str(config), "--key", "no", "--yes")
    assert said.code == 1
    assert f"Wrote {tmp_path}/sites/{name}.toml." in said.text
    assert ".invalid, reached: " in said.text, "the connection was checked with these options"
    expected = {"user": "ana", "ssh_config": str(config), **login}
    assert _login_of(tmp_path, name) == (extends, expected)


def test_built_in_profiles_are_listed_and_a_near_name_is_offered(init: Callable[..., Said], tmp_path: Path) -> None:
    options = ("--host", "login.invalid", "--key", "no")
    dialogue: Script = [(r"Name of the cluster \(a built-in profile, or a new name\)", "skynet"), ("user name", "ana")]
    said = init(dialogue, *options)
    for line in ("Built-in profiles:", "  skynet       SkyNet (Georgia Tech)", "also called hpc2019", "Needs a VPN."):
        assert line in said.text
    assert _login_of(tmp_path, "skynet") == ("skynet", {"host": "login.invalid", "user": "ana"})
    # An answer of "yes" would contact the real host; the question about the user ends it before.
    for typed, near in (("SkyNet", "skynet"), ("aau", "aau-aicloud"), ("hpc-2019", "unipi"), ("ARANDU", "arandu")):
        said = init([(f"no built-in profile {typed}. Use the built-in profile {near}.*yes\\]", "\4")], typed)
        assert said.code == 1
        assert not (tmp_path / "sites" / f"{typed}.toml").exists()
    said = init([("Use the built-in profile skynet", "no"), ("Login node", "\4")], "skynett")
    assert "There is no terminal to ask this question: Login node" in said.text


def test_options_replace_what_a_profile_says_and_keep_the_rest(init: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    (tmp_path / "far.toml").write_text(_READY + '[launch]\ntime = "1:00:00"\n')
    words = ("--host", "other.invalid", "--jump", "none", "--user", "eva", "--ssh-config", str(tmp_path / "config"))
    init([], "--profile", str(tmp_path / "far.toml"), *words, "--key", "no")
    written = (tmp_path / "sites" / "far.toml").read_text()
    expected = tomllib.loads(_READY + '[launch]\ntime = "1:00:00"\n')
    config = str(tmp_path / "config")
    expected["login"] = {"host": "other.invalid", "jump": [], "user": "eva", "ssh_config": config}
    assert tomllib.loads(written) == expected
    assert written.startswith('# Ours\ntitle = "Far away"\n\n[login]  # the way\n')
    said = init([], "bad", "--profile", str(tmp_path / "far.toml"), "--jump", "a;b,c", "--user", "eva")
    assert "--jump eva@a;b,eva@c cannot be used: " in said.text
    assert not (tmp_path / "sites" / "bad.toml").exists()
    said = init([], "--profile", "skynat")
    assert "Did you mean the built-in profile skynet?" in said.text


def test_what_is_typed_becomes_a_profile(init: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host *.invalid\n    IdentityFile none\n")
    dialogue: Script = [
        ("Login node \\(host name\\)", "-oProxyCommand=x"),
        ("host.*\n.*Login node", "login.invalid"),
        ("Your user name on the cluster", "a b"),
        ("user.*\n.*Your user name", "ana"),
        ("Jump hosts", "first.invalid, ana@second.invalid"),
    ]
    said = init(dialogue, "far", "--ssh-config", str(tmp_path / "config"), "--key", "no")
    assert said.code == 1
    assert "first.invalid, reached: " in said.text, "doctor looked it over"
    jump = ["ana@first.invalid", "ana@second.invalid"]
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


@pytest.mark.root
@pytest.mark.slow
def test_openssh_gives_the_login_node_a_key(laptop: Any, ssh_host: Callable[..., SshHost]) -> None:
    """By the login that it has made, which stays."""
    host = ssh_host(name="far-host", options={"PasswordAuthentication": "yes", "UsePAM": "no"}, users=[laptop.user])
    (host.etc / "authorized_keys.d" / laptop.user).unlink()
    laptop.write(".ssh/known_hosts", host.known_hosts_lines())
    password = secrets.token_hex(8)
    subprocess.run(["chpasswd"], input=f"{laptop.user}:{password}", text=True, check=True)
    ready = laptop.write("ready.toml", f'[login]\nhost = "{host.address}"\ncarrier = "openssh"\n')
    dialogue: Script = [("Password for", password)]
    options = ("--profile", str(ready), "--user", laptop.user, "--key", "yes", "--no-passphrase")
    said = laptop.slurm("init", "far", *options, dialogue=dialogue)
    assert f"Your public key was added on {host.address}." in said.text
    assert laptop.printed("disconnect", "far").returncode == 0
    again = laptop.printed("doctor", "far")
    key = laptop.ssh / "id_ed25519"
    assert f"login: {laptop.user} is logged in by key {key} (OpenSSH_" in again.stdout
