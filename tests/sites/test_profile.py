"""Tests of site profiles: accepted values, and refusals with their messages."""

from __future__ import annotations

import dataclasses
import os
import re

import pytest

from jupyter_slurm.config import Settings
from jupyter_slurm.domain.cluster_facts import NamedEntity
from jupyter_slurm.domain.profile_facts import merge_profile_facts, named_in
from jupyter_slurm.errors import ConfigError, TransportError
from jupyter_slurm.services.agent_core import Core
from jupyter_slurm.services.slurm.location import inspect_location, local_location
from jupyter_slurm.sites import profile as profile_module
from jupyter_slurm.sites.profile import Profile, list_profiles, load_profile, parse_profile
from jupyter_slurm.sites.shipped import shipped_names, shipped_text
from jupyter_slurm.transport.local.transport import LocalTransport

FULL = b"""
title = "Arandu"
[login]
host = "arandu"
jump = ["gateway", "me@second:2222", "me@[fd00::1]:22"]
user = "ana"
port = 2200
ssh_config = "~/.ssh/arandu"
carrier = "paramiko"
max_age = 3600
vpn = { name = "the VPN of the institute", url = "https://vpn.example.org/" }
[shell]
prelude = "module load slurm"
login_shell = true
patience = 300
[slurm]
conf = "/opt/slurm/slurm.conf"
job_root = "/scratch/ana/jobs"
poll_shortest = 60
[tunnels]
ports = [8100, 8200]
[python]
path = "/sw/python/bin/python3"
[cost]
unit = "credits"
gpu_hour = 4
[launch]
partition = "gpu"
gpus = 2
[storage]
shared = "$SCRATCH/me"
local = "/output/$USER"
home_on_nodes = false
expires = "60 days"
"""


def test_every_key_arrives():
    assert parse_profile("arandu", FULL, "x.toml") == Profile(
        "arandu",
        "arandu",
        ("gateway", "me@second:2222", "me@[fd00::1]:22"),
        "ana",
        2200,
        os.path.expanduser("~/.ssh/arandu"),
        "paramiko",
        3600,
        "module load slurm",
        True,
        300,
        "/opt/slurm/slurm.conf",
        "/scratch/ana/jobs",
        60,
        (8100, 8200),
        title="Arandu",
        python="/sw/python/bin/python3",
        cost={"unit": "credits", "gpu_hour": 4},
        launch={"partition": "gpu", "gpus": 2},
        storage={"shared": "$SCRATCH/me", "local": "/output/$USER", "home_on_nodes": False, "expires": "60 days"},
        vpn={"name": "the VPN of the institute", "url": "https://vpn.example.org/"},
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[env.a]\nvenv = 'relative/path'", "env.a.venv"),
        ("[env.a]\nvenv = '/v'\nconda = 'c'", "env.a sets both venv and conda"),
        ("[env.a]\nmodules = ['--version']", "env.a.modules.0"),
        ('[env.a]\nmodules = ["a\\u0001"]', "env.a.modules.0"),
        ("[env.a]\nvariables = { 'A=B' = 'x' }", "env.a.variables"),
        ("[env.a]\ncontainer = 'x'", "env.a"),
        ("[env.'a/b']\nconda = 'x'", "env"),
        ("[env.a]\nimage = 'ubuntu'\nconda = 'c'", "env.a: `image` and `conda` are two environments"),
        ("[env.a]\nimage = '--privileged'", "env.a.image"),
        ("[env.a]\nimage = 'a --privileged'", "env.a: 'a --privileged' is not a valid image name"),
        ("[env.a]\nimage = 'a'\nruntime = 'sudo docker'", "env.a.runtime"),
        ("[env.a]\nimage = 'a'\nbind = ['--privileged']", "env.a.bind.0"),
        ("[env.a]\nimage = 'a'\nbind = ['/:/']", "env.a: '/:/' would hide"),
        ("[container]\nbind = ['data:/data']", "container.bind: 'data:/data' is not a valid directory"),
        ("[container]\ngpu_variable = 'A=B'", "container.gpu_variable"),
        ("[container]\nruntime = 'lxc'", "container.runtime"),
        (
            "[container]\nruntime = 'podman'\nsudo = true",
            "c.toml:5: container.sudo: The runtime podman does not use sudo",
        ),
        ("[container]\nsudo = 'docker'", "container.sudo"),
        ("[launch]\npartition = '--wrap=x'", "launch.partition"),
        ("[launch]\nidle = 60", "launch.idle"),
        (
            "[partitions]\na = { max_time = '4 hours' }",
            "c.toml:4: partitions.a.max_time: '4 hours' is not a time limit",
        ),
        ("[partitions]\na = { gpus = 2 }", "c.toml:4: partitions.a.gpus must be object"),
        ("[partitions.'-a']\nabout = 'x'", "partitions"),
        ("[gpus.a40]\nhow = '--gpus a40:1'", "c.toml:4: gpus.a40.how is not a valid key"),
        ("[qos.normal]\nabout = ''", "c.toml:4: qos.normal.about"),
        ("[accounts]\nlab = 'ours'", "c.toml:4: accounts.lab must be object"),
        ("[cost]\ngpu_hour = 4", "cost"),
        ("[cost]\nunit = 'R$'\ngpu_hour = { a100 = -1 }", "cost.gpu_hour"),
        ("[cost]\nunit = 'R$'\ncpu_hour = inf", "cost.cpu_hour"),
    ],
)
def test_an_environment_that_cannot_be_is_refused(text, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse_profile("c", f"[login]\nhost = 'h'\n{text}\n".encode(), "c.toml")


def test_a_host_is_enough():
    profile = parse_profile("c", b'[login]\nhost = "c.example.org"\n', "c.toml")
    assert (profile.host, profile.jump, profile.carrier, profile.ports) == (
        "c.example.org",
        None,
        "paramiko",
        (8000, 9000),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "login"),
        (b"[login", "not TOML"),
        (b"\xff", "not TOML"),
        (b'[login]\nhost = "-oProxyCommand=touch x"', "login.host"),
        (b'[login]\nhost = "a b"', "login.host"),
        (b'[login]\nhost = "a\\n"', "login.host"),
        (b'[login]\nhost = "a"\nuser = "-l"', "login.user"),
        (b'[login]\nhost = "a"\nport = 70000', "login.port"),
        (b'[login]\nhost = "a"\nhots = 1', r"login\.hots is not a valid key"),
        (b'[login]\nhost = "a"\n[slrum]\n', "slrum is not a valid key"),
        (b'[login]\nhost = "a:22"', r"login\.host: 'a:22' contains a port"),
        (b'[login]\nhost = "me@a:22"', r"login\.host: 'me@a:22' contains a port"),
        (b'[login]\nhost = "a"\nmax_age = inf', r"login\.max_age: inf"),
        (b'[login]\nhost = "a"\nmax_age = nan', r"login\.max_age: nan"),
        (b'[login]\nhost = "a"\n[shell]\npatience = nan', r"shell\.patience: nan"),
        (b'[login]\nhost = "a"\n[slurm]\npoll_shortest = inf', r"slurm\.poll_shortest: inf"),
        (b'[login]\nhost = "a"\n[shell]\nprelude = "a\\u0000b"', r"shell\.prelude holds a NUL"),
        (b'title = "a\\u0000b"\n[login]\nhost = "a"', "title holds a NUL"),
        (b'[login]\nhost = "a"\nuser = "UNI\\\\"', r"login\.user"),
        (b'[login]\nhost = "a"\n[slurm]\npoll_shortest = 1', "slurm.poll_shortest"),
        (b'[login]\nhost = "a"\n[slurm]\njob_root = "jobs"', "slurm.job_root"),
        (b'[login]\nhost = "a"\n[tunnels]\nports = [9000, 8000]', "8000"),
        (b'[login]\nhost = "a"\n[tunnels]\nnode_ports = [30000, 20000]', "node_ports: 30000 is after 20000"),
        (b'[login]\nhost = "a"\n[python]\npath = "-c"', "python.path"),
        (b"x = " + b"[" * 5000, "not TOML"),
    ],
)
def test_what_is_wrong_is_named(text, said):
    with pytest.raises(ConfigError, match=said) as caught:
        parse_profile("c", text, "c.toml")
    assert "c.toml" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ('hots = "x"', "host"),
        ("login_shel = true", None),
        ("[shell]\nlogin_shel = true", "login_shell"),
        ("[slrum]", "slurm"),
        ("[env.a]\nmodule = []", "modules"),
        ("[container]\nruntimes = 'docker'", "runtime"),
    ],
)
def test_a_mistyped_key_names_the_nearest_one(text, near):
    with pytest.raises(ConfigError, match="is not a valid key") as caught:
        parse_profile("c", f'[login]\nhost = "a"\n{text}\n'.encode(), "c.toml")
    assert (f"Did you mean {near}?" if near else "The valid keys are host, jump") in caught.value.hint


@pytest.mark.parametrize("user", ["UNI\\\\ana", "a", "ana@uni.br"])
def test_names_of_users_are_those_that_ssh_config_may_say(user):
    profile = parse_profile("c", f'[login]\nhost = "a"\nuser = "{user}"\n'.encode(), "c.toml")
    assert profile.user == user.replace("\\\\", "\\")


def test_addresses_of_ipv6_are_no_ports():
    assert parse_profile("c", b'[login]\nhost = "fd00::1:22"\n', "c.toml").host == "fd00::1:22"


def test_the_first_folder_wins(tmp_path):
    for folder, host in (("mine", "a"), ("shipped", "b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "c.toml").write_text(f'[login]\nhost = "{host}"\n')
    (tmp_path / "shipped" / "d.toml").write_text('[login]\nhost = "d"\n')
    (tmp_path / "shipped" / "-x.toml").touch()
    folders = [str(tmp_path / "mine"), str(tmp_path / "shipped"), str(tmp_path / "none")]
    assert load_profile("c", folders).host == "a"
    assert list_profiles(folders) == ["c", "d"]


@pytest.mark.parametrize("name", ["nowhere", "../c", "", "c/../c", "local", "-x"])
def test_a_name_without_a_profile(tmp_path, name):
    (tmp_path / "c.toml").write_text('[login]\nhost = "c"\n')
    (tmp_path / "local.toml").write_text('[login]\nhost = "c"\n')
    with pytest.raises(ConfigError):
        load_profile(name, [str(tmp_path)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[login]\nhost = 'a'\n\n# ports\n[tunnels]\nports = [\n  8000,\n  'x',\n]\n", "c.toml:6: tunnels.ports.1 "),
        (
            "[login]\nhost = 'a'\n[shell]\nprelud = '''\nmodule load\n'''\n",
            "c.toml:4: shell.prelud is not a valid key",
        ),
        ("[login]\nhots = 'a'\nhost = 'a'\n", "c.toml:2: login.hots is not a valid key"),
        ("title = 'x'\n[login]\nuser = 'a'\n", "c.toml:2: login "),
        ("[login]\nhost = 'a'\n[tunnels]\nports = [9000, 8000]", "c.toml:4: tunnels.ports: 9000 is after"),
        ("[login]\r\nhost = 'a'\r\n\r\n[env.x]\r\nvenv = '/v'\r\nconda = 'c'\r\n", "c.toml:4: env.x sets both"),
        ("[login]\nhost = 'a'\n[container]\nbind = ['data:/data']", "c.toml:4: container.bind: 'data:/data'"),
        ("[login]\nhost = 'a'\nmax_age = nan", "c.toml:3: login.max_age: nan"),
        ("title = 'x'\nextends = 'arand'", "c.toml:2: extends: there is no built-in profile 'arand'"),
        ("extends = ['arandu']", "c.toml:1: extends: "),
        ("extends = 'arandu'\n[login]\nuser = 5", "c.toml:3: login.user "),
        ("[login]\nhost = x\n", "c.toml:2 is not TOML"),
        ("[login]\nhost = ", "c.toml is not TOML"),
        ("title = 'x'", "c.toml: the profile "),
    ],
)
def test_the_line_of_a_mistake_is_told(text, said):
    with pytest.raises(ConfigError) as caught:
        parse_profile("c", text.encode(), "c.toml")
    assert said in caught.value.message


def test_one_that_extends_another_overrides_any_key_of_it():
    shipped = parse_profile("skynet", shipped_text("skynet").encode(), "x")
    text = 'extends = "skynet"\n[login]\nuser = "ana"\n[container]\nbind = ["/srv"]\n[tunnels]\nports = [8100, 8200]\n'
    own = parse_profile("mine", text.encode(), "mine.toml")
    container = {**shipped.container, "bind": ["/srv"]}
    assert own == dataclasses.replace(shipped, name="mine", user="ana", ports=(8100, 8200), container=container)
    assert own.node_ports == (8000, 9000)


@pytest.mark.parametrize("name", shipped_names())
def test_those_that_ship_can_be_used_as_they_are(name):
    profile = parse_profile(name, shipped_text(name).encode(), name)
    assert profile.title
    assert profile.user is None, "nobody's name stands there"
    assert "@" not in "".join((profile.host, *(profile.jump or ())))


def test_what_a_profile_knows_stands_in_for_the_cluster_and_then_beside_its_word():
    """Live facts win: the profile supplies only the facts unknown to Slurm."""
    profile = parse_profile("sdumont", shipped_text("sdumont").encode(), "x")
    known = {**profile.known, "cost": profile.cost}
    offered = dict(named_in(known, "partition"))
    assert offered["gdl"] == "8 v100 a node, at most 48:00:00, for very deep models, an hour counts 2 times"
    live = [NamedEntity("gdl", "3 nodes, at most 2-00:00:00"), NamedEntity("new", "1 node")]
    assert merge_profile_facts(known, "partition", live) == [
        NamedEntity("gdl", "3 nodes, at most 2-00:00:00, for very deep models, an hour counts 2 times"),
        NamedEntity("new", "1 node"),
    ]
    skynet = parse_profile("skynet", shipped_text("skynet").encode(), "x").known
    assert dict(named_in(skynet, "gpu"))["a40"].startswith("--gpus a40:1, ")
    assert named_in(skynet, "feature") == [], "no type is said to be a feature before the cluster has"
    assert merge_profile_facts(skynet, "feature", [NamedEntity("a40", "9 nodes")])[0].about.startswith(
        "9 nodes, --gpus a40:1"
    )
    assert named_in(skynet, "node") == []
    assert merge_profile_facts(skynet, "node", [NamedEntity("sky", "idle")]) == [NamedEntity("sky", "idle")]


async def test_before_the_log_in_names_are_those_of_the_profile(tmp_path):
    """A user who types `-p` before the first login, or fills in a form, gets the profile's names."""
    (tmp_path / "pisa.toml").write_text('extends = "unipi"\n')
    (tmp_path / "sky.toml").write_text('extends = "skynet"\n[partitions]\nours = { max_time = "1-0" }\n')
    core = Core(
        Settings(**{name: str(tmp_path) for name in ("job_root", "state_dir", "runtime_dir")}, sites=[str(tmp_path)])
    )
    await core.start()
    try:
        sky = await core.clusters.register(None, None, "sky")
        assert (sky["connection"]["state"], sky["gpus"]) == ("disconnected", True)
        assert "gpus" not in await core.clusters.register(None, None, "pisa"), "its profile names none"
        told = await core.clusters.list_names("sky", "partition", 0.0)
        assert told["taken"] is None, "the cluster has said nothing"
        names = {one["name"]: one["about"] for one in told["names"]}
        assert names.keys() > {"debug", "short", "long", "user-overcap", "overcap", "ours"}
        assert names["ours"] == "at most 1-0"
        assert (await core.clusters.list_names("sky", "job", 0.0))["names"] == []
    finally:
        await core.stop()


@pytest.mark.parametrize(
    ("value", "root"), [("/scratch/p/ana", "/scratch/p/ana/jobs/local"), ("", None), ("rel", None)]
)
async def test_a_variable_of_the_login_node_can_name_the_folder_of_jobs(monkeypatch, value, root):
    monkeypatch.setenv("SCRATCH", value)
    text = b'[login]\nhost = "far"\n[slurm]\njob_root = "$SCRATCH/jobs"\n'
    transport = LocalTransport()
    try:
        if root is None:
            with pytest.raises(TransportError, match="SCRATCH is not set to a directory on far") as caught:
                await inspect_location(transport, parse_profile("c", text, "c.toml"), 10.0)
            assert "login_shell" in caught.value.hint
        else:
            where = await inspect_location(transport, parse_profile("c", text, "c.toml"), 10.0)
            assert os.path.dirname(where.folder) == os.path.dirname(root)
    finally:
        transport.close()


def test_a_cluster_without_settings_of_its_own_needs_no_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a first submission does not wait for the generation of the checker."""
    monkeypatch.setattr(profile_module, "_checker", lambda: pytest.fail("the checker is generated"))
    local_location(Settings(), None, None)
