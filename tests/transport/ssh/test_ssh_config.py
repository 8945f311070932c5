"""Routes to hosts equal those of OpenSSH."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from jupyter_slurm.errors import CommandTimeout, ConfigError
from jupyter_slurm.transport.ssh.config import ssh_config
from jupyter_slurm.transport.ssh.config.ssh_config import resolve_route

REAL_SSH = shutil.which("ssh")
pytestmark = pytest.mark.skipif(REAL_SSH is None, reason="needs OpenSSH")

# For each: the content of the file, and the requested names.
DEAD = "Host *\n ProxyCommand /bin/false\n"  # OpenSSH searches keys after it has a connection, or a proxy command
CONFIGS = {
    "nothing": ("", ["somewhere", "me@there"]),
    "hostname-port-user": ("Host t\n HostName h-%h.example\n Port 2222\n User bob\n", ["t", "ann@t"]),
    "first-value-wins": ("Host t\n User one\nHost *\n User two\n Port 99\n", ["t", "x"]),
    "patterns": ("Host *.uni !bad.uni\n User a\nHost b?d.uni\n User b\n", ["x.uni", "bad.uni"]),
    "keyword=value": ('Host t\n User="bob"\n port=17\n', ["t"]),
    "include": ("Include more/*.conf\nHost t\n User late\n", ["t"]),
    "match-host": ("Match host t\n User m\nMatch originalhost u !user root\n User o\n", ["t", "u"]),
    "match-user": ("Host t\n User bob\nMatch user bob\n Port 77\n", ["t", "bob@u", "u"]),
    "match-exec": ("Match exec \"test %n = t\"\n User e\n ProxyJump gate\nMatch all\n Port 5\n", ["t", "u"]),
    "match-final": ("Host t\n HostName t.example\nMatch final host t.example\n Port 88\n User f\n", ["t", "u"]),
    "canonical-fallback": ("CanonicalizeHostname yes\nCanonicalDomains invalid\nMatch canonical all\n Port 6\n", ["t"]),
    "jump": ("Host t\n ProxyJump gate\nHost gate\n HostName g.example\n User g\n Port 2200\n", ["t"]),
    "jump-user-port": ("Host t\n ProxyJump ann@gate:2201\nHost gate\n User g\n Port 2200\n", ["t"]),
    "jump-uri": ("Host t\n ProxyJump ssh://ann@gate:2201\n", ["t"]),
    "jump-list": ("Host t\n ProxyJump a,ann@b:23,c\nHost b\n HostName bb\nHost *\n User u\n", ["t"]),
    "jump-chain": ("Host t\n ProxyJump c\nHost c\n ProxyJump b\nHost b\n ProxyJump a\n", ["t"]),
    "jump-list-and-chain": ("Host t\n ProxyJump b,c\nHost c\n ProxyJump wrong\nHost b\n ProxyJump a\n", ["t"]),
    "jump-none": ("Host gate\n ProxyJump none\nHost *\n ProxyJump gate\n", ["gate", "t"]),
    "jump-negated": ("Host * !gate\n ProxyJump gate\n", ["gate", "t"]),
    "jump-tokens": ("Host t\n HostName inner\n ProxyJump %r@gate-%h\n User bob\n Port 24\n", ["t"]),
    "jump-ipv6": ("Host t\n HostName fd00::2\n ProxyJump ann@[fd00::1]:2222\n", ["t"]),
    "jump-wins-if-first": ("Host t\n ProxyJump gate\n ProxyCommand nc %h %p\n", ["t"]),
    "command-wins-if-first": ("Host t\n ProxyCommand /bin/false %h %p\n ProxyJump gate\n", ["t"]),
    "command-tokens": ("Host t\n HostName i\n HostKeyAlias k\n ProxyCommand /bin/false '%h' %p %r %n %k %% x # y\n", ["t"]),
    "command-of-a-jump": ("Host t\n ProxyJump gate\nHost gate\n ProxyCommand /bin/false %h:%p %r\n", ["t"]),
    "command-that-jumps": ("Host t\n ProxyCommand ssh -F CONFIG -W %h:%p gate 2>/dev/null\nHost gate\n User g\n", ["t"]),
    "command-jumps-on": ("Host t\n ProxyCommand /usr/bin/env true\nHost u\n ProxyCommand ssh -q -l ann -p 24 b -F CONFIG -W [%h]:%p\nHost b\n ProxyJump a\n", ["u", "t"]),
    "command-none": ("Host t\n ProxyCommand none\nHost *\n ProxyCommand /bin/false\n", ["t"]),
    "keys": ("Host t\n IdentityFile /k/%r_%n_%h_%p_%C_%u_%d\n IdentityFile ${HOME}/%%x\n IdentityFile ~/y\n" + DEAD, ["t"]),
    "keys-quoted": ('Host t\n IdentityFile "/k k/\\"%r\\""\n' + DEAD, ["t"]),
    "keys-of-hops": ("Host t\n IdentityFile /k/t_%r\n ProxyJump g\nHost g\n IdentityFile /k/g_%r\n User gg\n" + DEAD, ["t"]),
    "certificates": ("Host t\n CertificateFile /c/%r-%h-cert.pub\n CertificateFile ~/c\n IdentityFile /k\n" + DEAD, ["t"]),
}  # fmt: skip


@pytest.fixture
def home(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.conf").write_text("Host t\n User included\n Port 44\n")
    return tmp_path


@pytest.fixture
def recorded(home, monkeypatch):
    """Provide an ``ssh`` that records its arguments: OpenSSH calls itself for each hop."""
    calls = home / "calls"
    folder = home / "bin"
    folder.mkdir()
    ssh = folder / "ssh"
    ssh.write_text(
        "#!/bin/bash\n"
        f'[[ " $* " == *" -G "* ]] || printf "%s\\0" "$@" $\'\\n\' >> {shlex.quote(str(calls))}\n'
        f'exec -a ssh {REAL_SSH} "$@"\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def connect(config, name):
        """Return the arguments of each OpenSSH of one attempt, the target first, and their output."""
        calls.unlink(missing_ok=True)
        argv = ["ssh", "-T", "-v", "-o", "ConnectTimeout=1", "-F", str(config), "--", name]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        rows = [row.split("\0")[:-1] for row in calls.read_text().split("\n\0")]
        return [[word for word in row if word] for row in rows if any(row)], done.stderr

    return connect


def _options(arguments):
    """Return ``-l``, ``-p``, ``-J``, ``-F`` and ``-W`` of an OpenSSH command line, and its host."""
    found, name, rest = {}, "", list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-l", "-p", "-J", "-F", "-W", "-o"):
            found[word] = rest.pop(0)
        elif not word.startswith("-"):
            name = word
    return found, name


def _settings(arguments):
    options, name = _options(arguments)
    argv = [word for key in ("-l", "-p", "-J", "-F") if key in options for word in (key, options[key])]
    text = subprocess.run([REAL_SSH, "-T", "-G", *argv, "--", name], capture_output=True, text=True, check=True).stdout
    return dict(line.partition(" ")[::2] for line in reversed(text.splitlines()))


@pytest.mark.parametrize("case", CONFIGS)
async def test_way_is_the_one_openssh_takes(case, home, recorded):
    text, names = CONFIGS[case]
    config = home / "config"
    config.write_text(text.replace("Include more", f"Include {home}/more").replace("CONFIG", str(config)))
    for name in names:
        way = await resolve_route(name, config_file=str(config))
        calls, said = recorded(config, name)
        assert [hop.name for hop in reversed(way)] == [
            _options(call)[1].rpartition("@")[2].strip("[]") for call in calls
        ], said
        for place, (hop, call) in enumerate(zip(reversed(way), calls, strict=True)):
            truth = _settings(call)
            assert (hop.hostname, str(hop.port), hop.user) == (truth["hostname"], truth["port"], truth["user"])
            assert hop.through == tuple(before.name for before in way[: len(way) - place - 1])
            if place:
                behind = way[len(way) - place]
                assert _options(call)[0]["-W"].replace("[", "").replace("]", "") == f"{behind.hostname}:{behind.port}"
        commands = [
            line.split("proxy command: exec ", 1)[1] for line in said.splitlines() if "proxy command: exec " in line
        ]
        assert [command for command in commands if not command.startswith("ssh ")] == (
            [way[0].proxy_command] if way[0].proxy_command else []
        )
        if case.startswith(("keys", "certificates")):
            _same_files(way, said)


def _same_files(way, said):
    """Compare with the files that OpenSSH tried, including default certificates (``-cert``) beside keys.

    OpenSSH 10.6 names no certificates that do not exist, and here none exists.
    """
    looked = [line.split(" file ", 1)[1].rsplit(" type ", 1)[0] for line in said.splitlines() if " file /" in line]
    ours, keys = [], []
    for hop in reversed(way):
        keys += hop.identity_files
        for path in hop.identity_files:
            ours += [path] if hop.certificate_files else [path, f"{path}-cert"]
        ours += hop.certificate_files
    assert looked in [[path for path in paths if "_xmss" not in path or path in looked] for paths in (ours, keys)]


@pytest.mark.parametrize(
    "command",
    [
        "ssh -W %h:%p gate",  # reads ~/.ssh/config, but another file was given
        "ssh -F {config} gate nc %h %p",
        "ssh -F {config} -i /key -W %h:%p gate",
        "ssh -F {config} -W other:22 gate",
        "ssh -F {config} -W %h:%p",
        "sshuttle -F {config} -W %h:%p gate",
        "ssh -F {config} -o IdentityFile=/key -W %h:%p gate",
        "ssh -F {config} -o BatchMode=yes -W %h:%p gate",
        "ssh -F {config} -W %h:%p gate || nc %h %p",
        "ssh -F {config} -W %h:%p $GATE",
        "ssh -F {config} -oWrong -W %h:%p gate",
        "ssh -F {config} -W %h:%p gate 2>>/tmp/log",
        "ssh -fF {config} -W %h:%p gate",
    ],
)
async def test_commands_that_are_no_jump_stay_commands(home, command):
    config = home / "config"
    command = command.replace("{config}", str(config))
    config.write_text(f"Host t\n ProxyCommand {command}\n")
    (host,) = await resolve_route("t", config_file=str(config))
    assert host.proxy_command == command.replace("%h", "t").replace("%p", "22")


JUMPS = [
    "exec ssh -W %h:%p g",
    "exec /usr/bin/ssh -qaxW %h:%p g 2>/dev/null",
    "ssh -W%h:%p g 2> /dev/null",
    "ssh -o ForwardAgent=no -oLogLevel=QUIET -o 'ConnectTimeout 5' -W '[%h]:%p' g",
    "ssh -oUser=gg -p 2200 -WI:22 g -T",
    "ssh -W %h:%p ssh://gg@g:2200",
    "ssh -J first,u@second:24 -W %h:%p -l gg -- g",
    "ssh -o ProxyJump=none -o StrictHostKeyChecking=no -W %h:%p [::1]",
]


@pytest.mark.parametrize("command", JUMPS)
@pytest.mark.parametrize("has_openssh", [True, False])
async def test_commands_that_are_a_jump(home, monkeypatch, command, has_openssh):
    """Check the commands of ``ssh -J``, also without OpenSSH, when no other program could run them."""
    config = home / "config"
    config.write_text(f"Host t\n HostName i\n ProxyCommand {command.replace('ssh -', f'ssh -F {config} -', 1)}\n")
    if not has_openssh:
        (home / "empty").mkdir()
        monkeypatch.setenv("PATH", str(home / "empty"))
    way = await resolve_route("t", config_file=str(config))
    name = "::1" if "::1" in command else "g"
    assert [hop.name for hop in way] == (["first", "second"] if "-J" in command else []) + [name, "t"]
    assert way[-2].port == (2200 if "2200" in command else 22)
    assert (way[-2].user == "gg") == ("gg" in command)
    assert [hop.proxy_command for hop in way] == [None] * len(way)


@pytest.mark.root
async def test_canonical_names_are_those_of_openssh(home, monkeypatch):
    """Check with a separate /etc/hosts, in which the name has the form that OpenSSH looks up."""
    (home / "hosts").write_text("127.0.0.1 localhost\n127.0.0.2 login.cluster.example.\n")
    (home / "bin").mkdir()
    ssh = home / "bin" / "ssh"
    mount = f'mount --bind {home}/hosts /etc/hosts && exec {REAL_SSH} "$@"'
    ssh.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{mount}' ssh \"$@\"\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    (home / "config").write_text(
        "CanonicalizeHostname yes\nCanonicalDomains other.example cluster.example\nCanonicalizeFallbackLocal no\n"
        "Match canonical host *.cluster.example\n User canonical\n IdentityFile /k/%h\n"
    )
    (host,) = await resolve_route("login", config_file=str(home / "config"))
    assert (host.name, host.hostname, host.user) == ("login", "login.cluster.example", "canonical")
    assert host.identity_files == ("/k/login.cluster.example",)
    with pytest.raises(ConfigError, match="Could not resolve"):
        await resolve_route("nowhere", config_file=str(home / "config"))


async def test_settings_of_a_host(home, monkeypatch):
    config = home / "config"
    config.write_text(
        "Host t\n IdentityAgent ~/agents/%r.sock\n User bob\n HostKeyAlias Name\n IdentitiesOnly yes\n"
        ' UserKnownHostsFile ~/kh_%n "/with space/kh"\n GlobalKnownHostsFile none\n HashKnownHosts yes\n'
        " StrictHostKeyChecking yes\n PreferredAuthentications password,gssapi-with-mic,publickey\n"
        " PasswordAuthentication no\n NumberOfPasswordPrompts 2\n ConnectTimeout 7\n AddressFamily inet\n"
        " BatchMode yes\n HostKeyAlgorithms ssh-ed25519\n RevokedHostKeys ~/r\n BindAddress 127.0.0.9\n ControlPath /c/%C\n"
        "Host none\n IdentityAgent none\n StrictHostKeyChecking no\nHost variable\n IdentityAgent $OTHER\n"
    )
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("OTHER", "/run/other")
    (host,) = await resolve_route("t", config_file=str(config))
    assert host.identity_agent == os.path.expanduser(
        "~root/agents/bob.sock" if os.geteuid() == 0 else "~/agents/bob.sock"
    )
    assert (host.host_key_alias, host.identities_only, host.strict, host.hash_known_hosts) == (
        "name",
        True,
        "yes",
        True,
    )
    assert host.user_known_hosts[1] == "/with space/kh"
    assert host.user_known_hosts[0].endswith("/kh_t")
    assert host.global_known_hosts == ()
    assert host.authentications == ("publickey",)
    assert (host.password_prompts, host.connect_timeout, host.address_family) == (2, 7.0, "inet")
    assert (host.batch_mode, host.host_key_algorithms, host.revoked_host_keys) == (
        True,
        ("ssh-ed25519",),
        ssh_config.os.path.join(ssh_config.pwd.getpwuid(os.getuid()).pw_dir, "r"),
    )
    assert host.bind_address == "127.0.0.9"
    assert host.control_path is not None
    assert "%" not in host.control_path
    (silent,) = await resolve_route("none", config_file=str(config))
    assert silent.identity_agent is None
    assert silent.strict == "ask", "an unknown key needs a person's yes, whatever the file says"
    assert (await resolve_route("variable", config_file=str(config)))[0].identity_agent == "/run/other"
    assert (await resolve_route("plain", config_file=str(config)))[0].identity_agent == "/run/agent"


async def test_profile_wins_over_the_file(home):
    config = home / "config"
    config.write_text("Host t\n User bob\n Port 1\n ProxyJump wrong\nHost gate\n User gina\n")
    way = await resolve_route("t", user="ann", port=22022, jump=["gate", "second"], config_file=str(config))
    assert (way[0].name, way[0].user, way[0].port) == ("gate", "gina", 22)
    assert [hop.name for hop in way] == ["gate", "second", "t"]
    assert (way[-1].user, way[-1].port) == ("ann", 22022)
    assert len(await resolve_route("t", jump=[], config_file=str(config))) == 1
    assert way[-1].label == "t (ann@t port 22022, through gate and second)"


async def test_chains_of_any_length(home):
    config = home / "config"
    config.write_text("".join(f"Host h{n}\n ProxyJump h{n - 1}\n" for n in range(1, 12)))
    assert [hop.name for hop in await resolve_route("h11", config_file=str(config))] == [f"h{n}" for n in range(12)]


@pytest.mark.parametrize(
    ("text", "name", "word"),
    [
        ("Host t\n ProxyJump t\n", "t", "jumphost loop"),
        ("Host a\n ProxyJump b\nHost b\n ProxyJump c\nHost c\n ProxyJump a\n", "a", "a -> b -> c -> a"),
        ("Host t\n ProxyJump x%h\nHost x*\n ProxyJump x%h\n", "t", "loop"),
        ("Host t\n Nonsense yes\n", "t", "Bad configuration option: nonsense"),
        ("Host t\n ProxyCommand nc %Z\n", "t", "%Z"),
        ("Host t\n IdentityFile ${NOT_THERE_AT_ALL}/x\n", "t", "NOT_THERE_AT_ALL"),
        ("Host t\n ProxyCommand nc %h\n ProxyUseFdpass yes\n", "t", "ProxyUseFdpass"),
        (
            "CanonicalizeHostname yes\nCanonicalDomains invalid\nCanonicalizeFallbackLocal no\n",
            "t",
            "Could not resolve host",
        ),
        ("Host t\n HostName $(id)\n", "t", "$(id)"),
        ("Host t\n User ;id\n ProxyCommand nc %r\n", "t", ";id"),
        ("Host t\n ProxyJump a;id\n", "t", "a;id"),
    ],
)
async def test_configurations_that_cannot_be_followed(home, text, name, word):
    config = home / "config"
    config.write_text(text)
    with pytest.raises(ConfigError) as caught:
        await resolve_route(name, config_file=str(config))
    assert word in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "name",
    [
        "-oProxyCommand=touch x",
        "",
        "a b",
        "a;b",
        "$(id)",
        "`id`",
        "a\nb",
        "a'b",
        "é",
        "-l@host",
        "a@-b",
        "x" * 256,
        "a\0",
        "%h|",
    ],
)
async def test_odd_names_never_reach_a_command_line(monkeypatch, name):
    async def never(*_):
        raise AssertionError("OpenSSH was asked")

    monkeypatch.setattr(ssh_config, "_ssh_g", never)
    with pytest.raises(ConfigError):
        await resolve_route(name)
    with pytest.raises(ConfigError):
        await resolve_route("fine", jump=["good", name or "-"])


async def test_a_match_that_hangs_is_given_up(home, monkeypatch):
    monkeypatch.setattr(ssh_config, "_SSH_TIMEOUT_S", 0.5)
    (home / "config").write_text('Match exec "sleep 600"\n User x\n')
    with pytest.raises(CommandTimeout):
        await resolve_route("t", config_file=str(home / "config"))


@pytest.fixture
def no_openssh(home, monkeypatch):
    (home / "empty").mkdir()
    monkeypatch.setenv("PATH", str(home / "empty"))


PLAIN = [case for case in CONFIGS if case not in ("include", "match-exec", "canonical-fallback", "match-final", "jump-tokens",
         "command-that-jumps", "command-jumps-on", "keys", "keys-quoted", "certificates", "keys-of-hops", "command-tokens", "command-wins-if-first", "nothing")]  # fmt: skip


@pytest.mark.parametrize("case", PLAIN)
async def test_without_openssh_the_way_is_the_same(case, home, monkeypatch):
    text, names = CONFIGS[case]
    config = home / "config"
    config.write_text(text)
    (home / "empty").mkdir()
    for name in names:
        truth = await resolve_route(name, config_file=str(config))
        with monkeypatch.context() as patch:
            patch.setenv("PATH", str(home / "empty"))
            ours = await resolve_route(name, config_file=str(config))
        seen = [(hop.name, hop.hostname, hop.port, hop.user, hop.proxy_command, hop.through) for hop in ours]
        assert seen == [(hop.name, hop.hostname, hop.port, hop.user, hop.proxy_command, hop.through) for hop in truth]


@pytest.mark.usefixtures("no_openssh")
@pytest.mark.parametrize(
    "text",
    [
        "Include x\n",
        "Host a\n\tinclude x\n",
        "Match exec true\n",
        'match host a exec "true"\n',
        "CanonicalizeHostname yes\n",
    ],
)
async def test_without_openssh_what_needs_it_is_said(home, text):
    (home / "config").write_text(text)
    with pytest.raises(ConfigError, match="needs OpenSSH") as caught:
        await resolve_route("t", config_file=str(home / "config"))
    assert "Install the OpenSSH client" in caught.value.hint


@pytest.mark.usefixtures("no_openssh")
async def test_without_openssh_the_usual_files_and_algorithms_are_known(home):
    (home / "config").write_text("PubkeyAcceptedAlgorithms +ssh-rsa\nCiphers ^aes128-ctr\nMACs hmac-sha2-256\n")
    (host,) = await resolve_route("t", config_file=str(home / "config"))
    assert (host.pubkey_algorithms[-2:], host.macs) == (("rsa-sha2-256", "ssh-rsa"), ("hmac-sha2-256",))
    assert host.ciphers[:2] == ("aes128-ctr", "chacha20-poly1305@openssh.com")
    assert {Path(path).name for path in host.identity_files} >= {"id_rsa", "id_ed25519"}
    assert [Path(path).name for path in host.user_known_hosts] == ["known_hosts", "known_hosts2"]
    assert all(os.path.isabs(path) for path in (*host.identity_files, *host.user_known_hosts))
