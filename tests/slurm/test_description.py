"""The TOML description: accepted values, and protection against values that become a second setting."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.embedded import configuration, load_description
from jupyter_slurm.embedded.accounting import first_commands, setup_commands
from jupyter_slurm.embedded.configuration import Machine, Ports
from jupyter_slurm.embedded.description import parse_description
from jupyter_slurm.embedded.layout import Layout
from jupyter_slurm.embedded.machine.network import Host, Hosts
from jupyter_slurm.errors import ConfigError

SMALL = """
name = "small"
[[nodes]]
names = "n[1-2]"
cpus = 4
memory = "8G"
gpus = { a100 = 2, h100 = 1 }
features = ["fast"]
[[nodes]]
names = "far1"
hidden = ["/scratch"]
[[partitions]]
name = "main"
nodes = ["n1", "n2"]
default = true
max_time = "2-00:00:00"
"""


def render(description, tmp_path):
    ports = Ports(1, 2, {name: 3 + i for i, name in enumerate(description.node_names)})
    machine = Machine("here", "root", "", (22, 5), "")
    return configuration.slurm_conf(description, Layout(tmp_path), ports, machine)


def test_arandu_is_what_its_guide_says():
    arandu = load_description()
    assert arandu.node_names == ["dgx01", "c4aiscw1", "c4aiscw2", "c4aiscw3", "c4aiscw4"]
    assert arandu.nodes[0].gpus == {"a100": 8}
    assert (arandu.nodes[0].cpus, arandu.nodes[0].memory) == (128, 2 * 1024 * 1024)
    assert arandu.nodes[1].gpu_count == 1
    assert {p.name: p.nodes for p in arandu.partitions} == {
        "arandu": ("dgx01",),
        "devwork": ("c4aiscw1", "c4aiscw2", "c4aiscw3", "c4aiscw4"),
    }


def test_what_is_described_stands_in_slurm_conf(tmp_path):
    text = render(parse_description(tomllib.loads(SMALL)), tmp_path)
    assert "NodeName=far1 NodeHostname=far1 NodeAddr=127.0.0.1 " in text
    assert "NodeName=n1 NodeHostname=here NodeAddr=127.0.0.1 " in text
    assert re.search(r"^NodeName=n2 .*CPUs=4 RealMemory=8192 Feature=fast Gres=gpu:a100:2,gpu:h100:1 ", text, re.M)
    assert re.search(r"^PartitionName=main Nodes=n1,n2 Default=YES MaxTime=2-00:00:00 DefMemPerCPU=2048 ", text, re.M)


def test_daemons_may_have_hosts_of_their_own(tmp_path):
    """Check that the configuration has the hosts' addresses, and that all daemons reach them."""
    description = parse_description(tomllib.loads(SMALL))
    nodes = {name: Host(name, f"10.0.0.{i}", ("enter", name)) for i, name in enumerate(description.node_names, 2)}
    hosts = Hosts(Host("head", "10.0.0.1", ("enter", "head")), nodes)
    ports, machine = Ports(1, 2, dict.fromkeys(nodes, 3)), Machine("head", "root", "", (22, 5), "", hosts, False)
    text = configuration.slurm_conf(description, Layout(tmp_path), ports, machine)
    assert "SlurmctldHost=head(10.0.0.1)" in text
    assert "NodeName=n2 NodeHostname=n2 NodeAddr=10.0.0.3 Port=3 " in text
    assert "127.0.0.1" not in text + configuration.slurmdbd_conf(Layout(tmp_path), ports, machine)
    assert "InAddrAny" not in text
    assert hosts.find_host("slurmd/n1") is nodes["n1"]
    assert hosts.find_host("slurmdbd") is hosts.controller
    assert hosts.find_host("munged") is None


@pytest.mark.parametrize("nodes", ['"n1,far1"', '"n[1,2],far1"', '["n[1-2],far1"]'])
def test_a_list_of_nodes_may_be_one_text_as_for_slurm(nodes):
    described = parse_description(tomllib.loads(SMALL.replace('["n1", "n2"]', nodes)))
    assert described.partitions[0].nodes == (("n1", "far1") if "[" not in nodes else ("n1", "n2", "far1"))


def test_each_gpu_has_a_device_of_its_own(tmp_path):
    description, layout = parse_description(tomllib.loads(SMALL)), Layout(tmp_path)
    layout.create()
    configuration.make_devices(description, layout)
    text = configuration.gres_conf(description, layout)
    assert f"NodeName=n1 Name=gpu Type=a100 File={tmp_path}/dev/n1/nvidia[0-1]" in text
    assert f"NodeName=n1 Name=gpu Type=h100 File={tmp_path}/dev/n1/nvidia2" in text
    assert sorted(p.name for p in (tmp_path / "dev" / "n2").iterdir()) == ["nvidia0", "nvidia1", "nvidia2"]
    assert all(p.resolve().is_char_device() for p in (tmp_path / "dev" / "n1").iterdir())


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ('name = "a b"', "name"),
        ('name = "a\\nSlurmUser=root"', "name"),
        ('names = "n[1-2]\\n"', "nodes.names"),
        ('names = "n[1-99999999]"', "nodes.names"),
        ('names = "n[2-1]"', "nodes.names"),
        ('names = "n[1-999]"', "nodes"),
        ('names = "-n"', "nodes.names"),
        ("cpus = 0", "nodes.cpus"),
        ("cpus = true", "nodes.cpus"),
        ('memory = "8 G"', "nodes.memory"),
        ('memory = "0G"', "nodes.memory"),
        ("memory = 8", "nodes.memory"),
        ("gpus = { a100 = -1 }", "nodes.gpus"),
        ('gpus = { "a100 x" = 1 }', "nodes.gpus"),
        ('gpus = { "" = 2 }', "nodes.gpus"),
        ('gpus = { "100" = 2 }', "nodes.gpus"),
        ('names = "DEFAULT"', "nodes.names"),
        ('names = ["n1", "Default"]', "nodes.names"),
        ('features = ["a b"]', "nodes.features"),
        ('features = "fast"', "nodes.features"),
        ('hidden = ["scratch"]', "nodes.hidden"),
        ('hidden = "/scratch"', "nodes.hidden"),
        ('nodes = ["n1", "n3"]', "partitions.nodes"),
        ('max_time = "soon"', "partitions.max_time"),
        ('max_time = "1:00 Hidden=YES"', "partitions.max_time"),
        ('default = "yes"', "partitions.default"),
    ],
)
def test_a_bad_value_is_refused_and_its_key_is_named(change, key):
    line = re.compile(rf"^{re.escape(change.split(' = ')[0])} = .*$", re.M)
    text = line.sub(lambda match: change, SMALL, count=1)
    assert text != SMALL
    with pytest.raises(ConfigError) as caught:
        parse_description(tomllib.loads(text))
    assert caught.value.message.startswith(f"{key}:")


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('extra = ["A=1\\nB=2"]', "extra"),
        ('extra = ["# nothing"]', "extra"),
        ('extra = ["Include /etc/passwd"]', "extra"),
        ('extra = ["A=1 \\\\"]', "extra"),
        ('private_data = ["everything"]', "private_data"),
        ('preemption = { by = "rank" }', "preemption.by"),
        ('preemption = { by = "qos" }', "preemption.by"),
        ('enforce = ["limits"]', "enforce"),
        ('accounting = true\nqos = [{ name = "q", limits = { MaxWall = "1 Flags=x" } }]', "qos.limits.MaxWall"),
        ('accounting = true\nqos = [{ name = "q", preempt = ["other"] }]', "qos.preempt"),
        ('accounting = true\nusers = [{ name = "u", accounts = ["none"] }]', "users.accounts"),
        ('accounting = true\nusers = [{ name = "u v", accounts = ["root"] }]', "users.name"),
        ('accounting = true\naccounts = [{ name = "a", parent = "b" }]', "accounts.parent"),
        ('accounting = true\naccounts = [{ name = "a" }, { name = "a" }]', "accounts.name"),
        ('accounting = true\naccounts = [{ name = "root" }]', "accounts.name"),
        ('accounting = true\naccounts = [{ name = "a", parent = "a" }]', "accounts.parent"),
        (
            'accounting = true\naccounts = [{ name = "x", parent = "a" }, { name = "a", parent = "b" }, '
            '{ name = "b", parent = "a" }]',
            "accounts.parent: the accounts form a loop",
        ),
    ],
)
def test_a_bad_setting_of_the_cluster_is_refused_and_its_key_is_named(line, key):
    with pytest.raises(ConfigError) as caught:
        parse_description(tomllib.loads(SMALL.replace('name = "small"', f'name = "small"\n{line}')))
    assert caught.value.message.startswith(f"{key}:")


@pytest.mark.parametrize("name", ["DEFAULT", "default"])
def test_a_partition_cannot_have_slurms_word_for_what_follows(name):
    with pytest.raises(ConfigError, match=r"partitions\.name: .* is a reserved word of Slurm") as caught:
        parse_description(tomllib.loads(SMALL.replace('name = "main"', f'name = "{name}"')))
    assert "default = true" in caught.value.hint


def test_an_unknown_key_is_told_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"nodes\.feature is not a valid key") as caught:
        parse_description(tomllib.loads(SMALL.replace("features", "feature")))
    assert caught.value.hint == "Did you mean features?"


def test_a_file_that_is_not_toml_or_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_description(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_description(tmp_path / "bad.toml")


@pytest.mark.parametrize("text", ["name = " + "[" * 9000, "name" + ".a" * 9000 + " = 1"])
def test_a_file_nested_too_deeply_is_told(tmp_path, text):
    (tmp_path / "deep.toml").write_text(text)
    with pytest.raises(ConfigError, match="nested too deeply"):
        load_description(tmp_path / "deep.toml")


@pytest.mark.parametrize("number", ["9" * 9000, "0x" + "f" * 9000])
def test_a_number_too_long_to_be_read_or_written_is_told(tmp_path, number):
    (tmp_path / "long.toml").write_text(f"name = {number}")
    with pytest.raises(ConfigError, match="is not TOML: Exceeds the limit"):
        load_description(tmp_path / "long.toml")


def _texts(data):
    """Return each text field of a description, as a function that sets the field."""
    return [
        lambda text: data | {"name": text},
        lambda text: data | {"extra": [text]},
        lambda text: data | {"nodes": [data["nodes"][0] | {"names": text}]},
        lambda text: data | {"nodes": [data["nodes"][0] | {"features": [text]}]},
        lambda text: data | {"nodes": [data["nodes"][0] | {"gpus": {text: 1}}]},
        lambda text: data | {"partitions": [data["partitions"][0] | {"name": text}]},
        lambda text: data | {"partitions": [data["partitions"][0] | {"max_time": text}]},
        lambda text: data | {"partitions": [data["partitions"][0] | {"oversubscribe": text}]},
    ]


@given(
    place=st.integers(0, 7),
    text=st.one_of(st.text(max_size=20), st.from_regex(r"[a-z]+[ \n\r\t#\\=]{0,2}[A-Z]?[a-z0-9=]*", fullmatch=True)),
)
def test_no_text_becomes_another_line_of_slurm_conf(place, text, tmp_path_factory):
    data = tomllib.loads(SMALL)
    directory = tmp_path_factory.getbasetemp()
    plain = render(parse_description(data), directory).splitlines()
    try:
        description = parse_description(_texts(data)[place](text))
    except ConfigError:
        return
    lines = render(description, directory).splitlines()
    expected = len(plain) + len(description.node_names) - 3 + (2 if description.extra else 0)
    assert len(lines) == expected
    for line in lines:
        # A blank ends a setting: only a whole line of slurm.conf given as such may contain more.
        words = [word for word in line.split(" ") if word]
        assert line in description.extra or all(re.fullmatch(r"[A-Za-z]+=\S+", word) for word in words)


def test_what_sacctmgr_is_told_comes_in_an_order_that_works():
    text = SMALL.replace(
        'name = "small"',
        """name = "small"
accounting = true
accounts = [{ name = "child", parent = "group" }, { name = "group", fairshare = 5 }]
users = [{ name = "u", accounts = ["child"], qos = ["normal", "high"], default_qos = "high" }]
qos = [{ name = "high", preempt = ["low"], limits = { MaxWall = "1:00:00" } }, { name = "low" }]""",
    )
    described = parse_description(tomllib.loads(text))
    commands = [" ".join(argv) for argv in (*first_commands(described), *setup_commands(described))]
    assert commands == [
        "add cluster small",
        "add qos high",
        "add qos low",
        "modify qos high set Preempt=low MaxWall=1:00:00",
        "add account group Cluster=small Description=group Organization=group Fairshare=5",
        "add account child Cluster=small Description=child Organization=child Parent=group",
        "add user u Cluster=small Account=child DefaultAccount=child",
        "modify user u set QosLevel=normal,high DefaultQOS=high",
    ]


def test_users_can_be_added_to_any_description():
    arandu = load_description().with_users("ann", "ben").with_users("ann")
    assert arandu.accounting
    assert [(u.name, u.accounts) for u in arandu.users] == [("ann", ("c4ai",)), ("ben", ("c4ai",))]
    assert replace(arandu, users=()).accounts[0].name == "c4ai"
