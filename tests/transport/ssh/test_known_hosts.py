"""Verdicts on host keys equal those of OpenSSH: real ssh, real sshd, real ssh-keygen."""

import base64
import contextlib
import re
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import paramiko
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_slurm.errors import HostKeyChanged, HostKeyError, HostKeyRevoked, HostKeyUnknown, from_problem
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig, resolve_route
from jupyter_slurm.transport.ssh.forwarding.node import node_host
from jupyter_slurm.transport.ssh.hostkeys.host_key_verification import add, check_host_key, host_key_order, verify
from jupyter_slurm.transport.ssh.hostkeys.known_hosts_entries import entries_for
from jupyter_slurm.transport.ssh.keys.public_keys import SHORT_KEY_HINT, fingerprint
from jupyter_slurm.transport.ssh.via_openssh.messages import failure


class Both:
    """One configuration, evaluated by OpenSSH and by jupyter_slurm."""

    def __init__(self, sshd, folder):
        self.sshd, self.folder = sshd, folder
        self.known = folder / "known"
        self.known.write_text("")

    def options(self, *more):
        """Return the options; the first value counts here too."""
        files = [f"UserKnownHostsFile={self.known}", "GlobalKnownHostsFile=none"]
        strict = [] if "BatchMode=yes" in more else ["StrictHostKeyChecking=yes"]
        return [word for option in [*files, *strict, *more] for word in ("-o", option)]

    def openssh(self, name="some.host", *more):
        """Return OpenSSH's verdict, and all its output."""
        argv = ["ssh", "-v", "-T", "-F", "none", "-o", f"ProxyCommand={self.sshd.command}", "-o", "BatchMode=yes"]
        said = subprocess.run([*argv, *self.options(*more), name, "true"], capture_output=True, text=True).stderr
        for word, verdict in [("REVOKED", "revoked"), ("in revoked keys file", "revoked"), ("revoked by file", "revoked"),
                              ("HAS CHANGED", "changed"), ("host key is known for", "unknown"), ("Permission denied", "known")]:  # fmt: skip
            if word in said:
                return verdict, said
        raise AssertionError(said)

    async def host(self, name="some.host", *more):
        text = "".join(f"{option.replace('=', ' ', 1)}\n" for option in self.options(*more) if "=" in option)
        (self.folder / "config").write_text(text)
        return (await resolve_route(name, config_file=str(self.folder / "config")))[-1]

    async def ours(self, name="some.host", *more):
        """Return jupyter_slurm's verdict on the key that the server offers."""
        host = await self.host(name, *more)
        return host, check_host_key(host, shown(self.sshd, host_key_order(host)))


def shown(sshd, order):
    """Connect with paramiko and return the key, or certificate, that the server proves to have."""
    transport = paramiko.Transport(sshd.connect())
    try:
        options = transport.get_security_options()
        options.key_types = tuple(dict.fromkeys(name for name in order if name in paramiko.Transport._key_info))
        transport.start_client(timeout=20)
        key = transport.get_remote_server_key()
        return key.public_blob.key_blob if key.public_blob else key.asbytes()
    finally:
        transport.close()


@pytest.fixture
def both(piped_sshd, tmp_path):
    return Both(piped_sshd, tmp_path)


PLAIN = {
    "same": ("some.host {host}", []),
    "nothing": ("", []),
    "comment": ("#some.host {host}\n\n  # x", []),
    "changed": ("some.host {other}", []),
    "changed-and-right": ("some.host {other}\nsome.host {host}", []),
    "other-type": ("some.host {rsa}", []),
    "other-host": ("else.where {other}", []),
    "list": ("a,b,some.host,c {host} a comment", []),
    "wildcard": ("*.host {host}", []),
    "question-mark": ("some.h?st {host}", []),
    "negated": ("*.host,!some.host {host}", []),
    "negated-alone": ("!some.host {host}", []),
    "negation-is-for-its-line": ("*,!some.host {other}\nsome.* {host}", []),
    "upper-case-pattern": ("SOME.Host {host}", []),
    "upper-case-name": ("real.name {host}", ["HostName=Real.Name"]),
    "hostname-not-alias": ("some.host {host}", ["HostName=real.name"]),
    "port": ("[some.host]:2222 {host}", ["Port=2222"]),
    "port-plain-name": ("some.host {host}", ["Port=2222"]),
    "port-plain-name-differs": ("some.host {other}", ["Port=2222"]),
    "port-both": ("some.host {host}\n[some.host]:2222 {other}", ["Port=2222"]),
    "port-22": ("[some.host]:22 {host}", []),
    "port-wildcard": ("[*.host]:* {host}", ["Port=2222"]),
    "alias": ("alias {host}", ["HostKeyAlias=ALIAS", "Port=2222"]),
    "alias-is-all": ("some.host {host}", ["HostKeyAlias=alias"]),
    "revoked": ("some.host {host}\n@revoked * {host}", []),
    "revoked-alone": ("@revoked some.host {host}", []),
    "revoked-another": ("some.host {host}\n@revoked * {other}", []),
    "revoked-elsewhere": ("some.host {host}\n@revoked else.where {host}", []),
    "revoked-plain-name": ("@revoked some.host {host}", ["Port=2222"]),
    "authority-is-no-key": ("@cert-authority * {host}", []),
    "unknown-marker": ("@nonsense some.host {host}", []),
    "two-markers": ("@revoked @revoked some.host {host}", []),
    "torn": ("some.host ssh-ed25519", []),
    "wrong-type": ("some.host ssh-rsa {bare}", []),
    "broken-key": ("some.host ssh-ed25519 AAAA!!", []),
    "unknown-type": ("some.host ssh-new AAAAB3NzaC1uZXc=", []),
    "tabs-and-blanks": ("  some.host\t{host}", []),
    "crlf": ("some.host {host}\r\n", []),
    "hashed": ("|hash", []),
    "hashed-port": ("|hash-port", ["Port=2222"]),
    "hashed-changed": ("|hash-other", []),
}


@pytest.mark.parametrize("case", PLAIN)
async def test_verdict_is_that_of_openssh(case, both):
    text, options = PLAIN[case]
    sshd = both.sshd
    sshd.key("rsa", "rsa", "-b", "2048")
    if text.startswith("|hash"):
        name = "[some.host]:2222" if "port" in text else "some.host"
        both.known.write_text(f"{name} {sshd.public('other' if 'other' in text else 'host')}\n")
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", both.known], check=True, capture_output=True)
        assert both.known.read_text().startswith("|1|")
    else:
        keys = {name: sshd.public(name) for name in ("host", "other", "rsa")}
        both.known.write_text(text.format(**keys, bare=keys["host"].split()[1]) + "\n")
    truth, said = both.openssh("some.host", *options)
    host, verdict = await both.ours("some.host", *options)
    assert verdict.status == truth, said
    assert verdict.fingerprint in said
    if truth == "changed":
        offending = re.search(r"Offending (\S+) key in (.*):(\d+)", said)
        with pytest.raises(HostKeyChanged) as caught:
            verify(host, shown(sshd, host_key_order(host)), never)
        assert (caught.value.details["file"], caught.value.details["line"]) == (offending[2], int(offending[3]))
        before = both.known.read_text()
        subprocess.run(["sh", "-c", caught.value.details["add_command"]], check=True, capture_output=True)
        assert both.openssh("some.host", *options)[0] == "known", "a second key is accepted beside the first"
        both.known.write_text(before)
        subprocess.run(["sh", "-c", caught.value.details["command"]], check=True, capture_output=True)
        assert both.openssh("some.host", *options)[0] != "changed", "the command mends it"


def never(_):
    raise AssertionError("asked")


CERTIFICATES = {
    "good": (["-h", "-n", "some.host"], "{ca}", []),
    "good-port": (["-h", "-n", "some.host"], "{ca}", ["Port=2222"]),
    "port-in-principal": (["-h", "-n", "[some.host]:2222"], "{ca}", ["Port=2222"]),
    "authority-for-port": (["-h", "-n", "some.host"], "@cert-authority [*.host]:2222 {key}", ["Port=2222"]),
    "wrong-principal": (["-h", "-n", "other.host"], "{ca}", []),
    "no-wildcard-principals": (["-h", "-n", "*.host"], "{ca}", []),
    "case-of-principal": (["-h", "-n", "Some.Host"], "{ca}", []),
    "alias": (["-h", "-n", "al.host"], "{ca}", ["HostKeyAlias=al.host"]),
    "alias-not-name": (["-h", "-n", "some.host"], "{ca}", ["HostKeyAlias=al.host"]),
    "expired": (["-h", "-n", "some.host", "-V", "20200101:20210101"], "{ca}", []),
    "not-yet": (["-h", "-n", "some.host", "-V", "20990101:21000101"], "{ca}", []),
    "users": (["-n", "some.host"], "{ca}", []),
    "revoked-authority": (["-h", "-n", "some.host"], "{ca}\n@revoked * {key}", []),
    "revoked-key": (["-h", "-n", "some.host"], "{ca}\n@revoked * {host}", []),
    "other-authority": (["-h", "-n", "some.host"], "@cert-authority * {other}", []),
    "negated-authority": (["-h", "-n", "some.host"], "@cert-authority *,!some.host {key}", []),
    "expired-and-known": (["-h", "-n", "some.host", "-V", "20200101:20210101"], "{ca}\nsome.host {host}", []),
    "expired-and-changed": (["-h", "-n", "some.host", "-V", "20200101:20210101"], "{ca}\nsome.host {other}", []),
    "good-and-changed": (["-h", "-n", "some.host"], "{ca}\nsome.host {other}", []),
    "unknown-option": (["-h", "-n", "some.host", "-O", "critical:foo=bar"], "{ca}", []),
    "signature-not-allowed": (["-h", "-n", "some.host"], "{ca}", ["CASignatureAlgorithms=rsa-sha2-512"]),
    "rsa-authority": (["-h", "-n", "some.host"], "{ca}", [], "rsa"),
    "rsa-authority-sha1": (["-h", "-n", "some.host", "-t", "ssh-rsa"], "{ca}", [], "rsa"),
    "ecdsa-authority": (["-h", "-n", "some.host"], "{ca}", [], "ecdsa"),
    "rsa-key": (["-h", "-n", "some.host"], "{ca}", [], "ed25519", "rsa"),
    "ecdsa-key": (["-h", "-n", "some.host"], "{ca}", [], "ed25519", "ecdsa"),
}


@pytest.mark.parametrize("case", CERTIFICATES)
async def test_verdict_on_certificates_is_that_of_openssh(case, both):
    options, known, settings_, *kinds = CERTIFICATES[case]
    authority, kind = [*kinds, "ed25519", "ed25519"][:2] if len(kinds) < 2 else kinds
    sshd = both.sshd
    key, ca = sshd.public("ca", authority), "@cert-authority *.host "
    host_key = f"host-{kind}"
    sshd.key(host_key, kind)
    if "users" in case:  # sshd refuses user certificates, so a forged one is used: the server's side is not under test
        made = sshd.certify(host_key, "ca", *options)
        blob = base64.b64decode(made.read_text().split()[1])
        both.known.write_text(f"{ca}{key}\n")
        assert check_host_key(await both.host(), blob).status == "unknown"
        return
    sshd.configure(host_keys=(host_key,), certificate=sshd.certify(host_key, "ca", *options))
    both.known.write_text(
        known.format(ca=ca + key, key=key, host=sshd.public(host_key), other=sshd.public("other")) + "\n"
    )
    truth, said = both.openssh("some.host", *settings_)
    _, verdict = await both.ours("some.host", *settings_)
    if case == "no-wildcard-principals" and truth == "known":  # OpenSSH 10.6
        truth = "unknown"  # asks, as all older ones do
    assert verdict.status == truth, said
    assert verdict.fingerprint in said
    if "expired" in case:
        assert verdict.remark == "it has expired"


async def test_forged_certificate_does_not_hold(both):
    sshd = both.sshd
    key = sshd.public("ca")
    sshd.key("host")
    blob = bytearray(base64.b64decode(sshd.certify("host", "ca", "-h", "-n", "some.host").read_text().split()[1]))
    both.known.write_text(f"@cert-authority * {key}\n")
    host = await both.host()
    assert check_host_key(host, bytes(blob)).status == "known"
    blob[-1] ^= 1
    verdict = check_host_key(host, bytes(blob))
    assert (verdict.status, verdict.remark) == ("unknown", "its signature is wrong")
    assert check_host_key(host, bytes(blob[:-40])).status == "unknown"


ORDERS = {
    "nothing": ("", []),
    "best": ("some.host {host-ed25519}", []),
    "rsa": ("some.host {host-rsa}", []),
    "two": ("some.host {host-rsa}\nsome.host {host-ecdsa}", []),
    "authority": ("some.host {host-rsa}\n@cert-authority * {ca}", []),
    "plain-name-of-a-port": ("some.host {host-rsa}", ["Port=2222"]),
    "revoked": ("@revoked some.host {host-rsa}", []),
    "elsewhere": ("else.where {host-rsa}", []),
}


@pytest.mark.parametrize("case", ORDERS)
async def test_known_types_are_asked_for_first(case, both):
    """Check that a server with three keys offers the same key as to OpenSSH."""
    text, options = ORDERS[case]
    sshd = both.sshd
    kinds = ("ed25519", "ecdsa", "rsa")
    for kind in kinds:
        sshd.key(f"host-{kind}", kind)
    certificate = sshd.certify("host-ed25519", "ca", "-h", "-n", "some.host") if sshd.key("ca") else None
    sshd.configure(host_keys=tuple(f"host-{kind}" for kind in kinds), certificate=certificate)
    keys = {name: sshd.public(name) for name in (*(f"host-{kind}" for kind in kinds), "ca")}
    both.known.write_text(text.format(**keys) + "\n")
    truth, said = both.openssh("some.host", *options)
    _, verdict = await both.ours("some.host", *options)
    assert (verdict.status, verdict.fingerprint in said) == (truth, True), said


async def test_revoked_host_keys_file(both, tmp_path):
    sshd = both.sshd
    both.known.write_text(f"some.host {sshd.public('host')}\n")
    blob = base64.b64decode(sshd.public("host").split()[1])
    sshd.key("other")
    for name, file in {"listed": "host", "krl": "host", "not-listed": "other", "missing": None}.items():
        path = tmp_path / name
        if name == "krl":
            subprocess.run(["ssh-keygen", "-q", "-k", "-f", path, sshd.folder / "host.pub"], check=True)
        elif file:
            path.write_text(sshd.public(file) + "\n")
        option = f"RevokedHostKeys={path}"
        truth, said = both.openssh("some.host", option)
        host = await both.host("some.host", option)
        if truth == "known":
            assert verify(host, blob, never).status == "known"
        else:
            with pytest.raises(HostKeyRevoked, match="revoked"):
                verify(host, blob, never)
        assert (truth == "known") == (name == "not-listed"), said


async def test_nodes_of_two_clusters_may_have_one_name(both):
    """Check that a key accepted under the bare name is known, and that a node of another cluster is no changed key."""
    blob, line = base64.b64decode(both.sshd.public("host").split()[1]), both.sshd.public("host")
    both.sshd.key("other", "rsa")
    other = both.sshd.public("other")
    for cluster, known, status, name in (
        ("far", f"node1 {line}", "known", "node1"),
        ("far", f"node1 {other}", "unknown", "far-node1"),
        ("far", f"node1 {other}\nfar-node1 {line}", "known", "far-node1"),
        ("far", f"node1 {line}\nfar-node1 {other}", "changed", "far-node1"),
        ("far", f"@revoked node1 {line}", "revoked", "node1"),
        ("", f"node1 {other}", "changed", "node1"),
    ):
        both.known.write_text(known + "\n")
        host = await node_host("node1", "127.0.0.1", "me", None, "none", cluster)
        host = replace(host, user_known_hosts=(str(both.known),), global_known_hosts=())
        verdict = check_host_key(host, blob)
        assert (verdict.status, verdict.name) == (status, name), known
        if status == "known":
            assert host_key_order(host)[0] == "ssh-ed25519", "the one that is known is asked for"
    both.known.write_text(f"node1 {other}\n")
    host = await node_host("node1", "127.0.0.1", "me", None, "none", "far")
    host = replace(host, user_known_hosts=(str(both.known),), global_known_hosts=(), batch_mode=False)
    assert verify(host, blob, asker(["yes"], [])).status == "unknown"
    assert both.known.read_text() == f"node1 {other}\nfar-node1 {line}\n"


async def test_a_node_is_where_slurm_says_unless_the_configuration_knows_better(tmp_path):
    config = tmp_path / "config"
    config.write_text("Host Known*\n HostName Elsewhere.Example\n")
    for node, truth in (("node1", "10.0.0.7"), ("GPU-A1", "10.0.0.7"), ("Known1", "elsewhere.example")):
        assert (await node_host(node, "10.0.0.7", "me", None, str(config))).hostname == truth


def asker(answers, asked):
    def ask(prompt):
        asked.append(prompt)
        return answers

    return ask


async def test_unknown_key_needs_a_yes_and_is_then_known_to_openssh(both):
    blob = base64.b64decode(both.sshd.public("host").split()[1])
    host = replace(await both.host("some.host", "Port=2222"), strict="ask")
    asked = []
    for answer in (None, ["no"], [""], ["y"], ["SHA256:wrong"]):
        with pytest.raises(HostKeyUnknown) as caught:
            verify(host, blob, asker(answer, asked))
        assert both.known.read_text() == ""
    assert caught.value.details["fingerprint"] == fingerprint(blob)
    assert fingerprint(blob) in asked[0].instruction
    assert asked[0].kind == "host-key"
    assert "some.host" in asked[0].host
    assert verify(host, blob, asker([fingerprint(blob)], asked)).status == "unknown"
    assert both.known.read_text() == f"[some.host]:2222 {both.sshd.public('host')}\n"
    assert both.openssh("some.host", "Port=2222")[0] == "known"
    assert verify(host, blob, never).status == "known"


async def test_a_key_that_is_too_short_is_refused_as_by_openssh(both):
    both.sshd.key("rsa", "rsa", "-b", "2048")
    both.sshd.configure(host_keys=("rsa",))
    both.known.write_text(f"some.host {both.sshd.public('rsa')}\n")
    assert both.openssh()[0] == "known"
    with pytest.raises(AssertionError, match="Bad server host key: Invalid key length") as said:
        both.openssh("some.host", "RequiredRSASize=3072")
    log = str(said.value).replace("\r", "")
    assert failure(log, [HostConfig("some.host", "some.host")], is_requested=False).hint == SHORT_KEY_HINT
    for size, refused in ((2048, False), (3072, True)):
        host = await both.host("some.host", f"RequiredRSASize={size}")
        with pytest.raises(HostKeyError, match="2048 bits") if refused else contextlib.nullcontext():
            assert verify(host, shown(both.sshd, host_key_order(host)), never).status == "known"


@pytest.mark.parametrize("option", ["StrictHostKeyChecking=yes", "BatchMode=yes"])
async def test_nobody_is_asked_where_the_configuration_says_no(both, option):
    blob = base64.b64decode(both.sshd.public("host").split()[1])
    host = await both.host("some.host", option, "Port=2222", "HashKnownHosts=yes")
    with pytest.raises(HostKeyUnknown) as refused:
        verify(host, blob, never)
    assert f"Your ssh configuration has `{option.replace('=', ' ')}` for some.host" in refused.value.hint
    subprocess.run(refused.value.hint.partition("add the key: ")[2], shell=True, check=True)
    assert verify(host, blob, never).status == "known"
    assert both.openssh("some.host", option, "Port=2222")[0] == "known"


@pytest.mark.parametrize("hashing", ["no", "yes"])
@pytest.mark.parametrize("port", [22, 2222])
async def test_key_is_written_as_openssh_writes_it(both, tmp_path, hashing, port):
    theirs = tmp_path / "theirs"
    options = [f"Port={port}", f"HashKnownHosts={hashing}"]
    argv = ["ssh", "-T", "-F", "none", "-o", f"ProxyCommand={both.sshd.command}", "-o", "BatchMode=yes", "-o",
            "StrictHostKeyChecking=accept-new", "-o", f"UserKnownHostsFile={theirs}", "-o", "UpdateHostKeys=no"]  # fmt: skip
    subprocess.run([*argv, *(word for o in options for word in ("-o", o)), "Some.Host", "true"], capture_output=True)
    host = await both.host("Some.Host", *options)
    both.known.unlink()
    assert add(host, base64.b64decode(both.sshd.public("host").split()[1])) == str(both.known)
    written, expected = both.known.read_text(), theirs.read_text()
    if hashing == "yes":
        assert written.startswith("|1|")
        assert written.split()[1:] == expected.split()[1:]
    else:
        assert written == expected
    assert stat.S_IMODE(both.known.stat().st_mode) == 0o600
    assert both.openssh("Some.Host", *options)[0] == "known"


def test_keys_are_added_without_losing_any(tmp_path, piped_sshd):
    blob = base64.b64decode(piped_sshd.public("host").split()[1])
    path = tmp_path / "new" / "known_hosts"
    hosts = [HostConfig(f"h{n}", f"h{n}", user_known_hosts=("/dev/null", str(path))) for n in range(50)]
    add(hosts[0], blob)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.write_text(path.read_text().rstrip("\n"))  # an editor has left the last line without a newline
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda host: add(host, blob), hosts[1:]))
    for host in hosts:
        assert check_host_key(host, blob).status == "known"
    assert len(list(filter(None, path.read_text().split("\n")))) == 50, "empty lines between them are no harm"


def test_key_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(HostKeyError, match="no known_hosts file"):
        add(HostConfig("h", "h", user_known_hosts=("/dev/null",)), b"")
    (tmp_path / "file").write_text("")
    with pytest.raises(HostKeyError, match="cannot be written") as caught:
        add(HostConfig("h", "h", user_known_hosts=(str(tmp_path / "file" / "known"),)), b"")
    assert from_problem(caught.value.to_problem()).hint


async def test_who_says_yes_is_connected_where_the_key_cannot_be_kept(both, tmp_path):
    """Check that a key which cannot be recorded is accepted, as in OpenSSH: asked once, with the reason."""
    blob, occupied = base64.b64decode(both.sshd.public("host").split()[1]), tmp_path / "occupied"
    occupied.mkdir()
    host = replace(await both.host("some.host"), strict="ask")
    for file, why in (
        (str(occupied), f"{occupied}: Is a directory"),
        ("/dev/null", "UserKnownHostsFile names no file"),
    ):
        unkept, asked, accepted = replace(host, user_known_hosts=(file,)), [], set()
        with pytest.raises(HostKeyUnknown):
            verify(unkept, blob, asker(["no"], asked), accepted)
        assert verify(unkept, blob, asker(["yes"], asked), accepted).status == "unknown"
        assert asked[1].instruction.endswith(f"cannot be stored, so the next login will ask again: {why}")
        assert "remember" not in asked[1].questions[0].text
        assert verify(unkept, blob, never, accepted).status == "unknown"
        with pytest.raises(HostKeyUnknown):
            verify(replace(unkept, hostname="other.host"), blob, asker(["no"], asked), accepted)


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_fingerprint_is_the_one_of_ssh_keygen(piped_sshd, kind):
    piped_sshd.key("k", kind)
    piped_sshd.key("ca")
    for path in (piped_sshd.folder / "k.pub", piped_sshd.certify("k", "ca")):
        blob = base64.b64decode(path.read_text().split()[1])
        truth = subprocess.run(["ssh-keygen", "-lf", path], capture_output=True, text=True, check=True).stdout
        assert fingerprint(blob) == truth.split()[1]


def test_files_that_are_not_there_are_no_error(tmp_path):
    (tmp_path / "folder").mkdir()
    assert list(entries_for("h", [str(tmp_path / "missing"), str(tmp_path / "folder")])) == []


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP1mD9fS9d0yqx2S1pCVwUqlm2x0QX0eJ5PyD9dQ0Xx1"
SALT = base64.b64encode(bytes(range(20))).decode()
names = st.text("ab.", min_size=1, max_size=4)
targets = st.one_of(names, st.builds("[{}]:{}".format, names, st.sampled_from(["22", "2", "222"])))
patterns = st.one_of(targets, st.text("abAB.*?![]:2", min_size=1, max_size=6))
lists = st.lists(patterns, min_size=1, max_size=3).map(",".join)
blanks = st.sampled_from([" ", "\t", "  ", " \t"])
keys = st.sampled_from(
    [KEY, KEY, KEY, KEY + " a comment", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-rsa " + KEY.split()[1], "x y"]
)
markers = st.sampled_from(["", "", "", "@revoked ", "@cert-authority\t", "@what ", "@ "])


def _hashed(name):
    import hashlib
    import hmac

    digest = hmac.new(bytes(range(20)), name.encode(), hashlib.sha1).digest()
    return f"|1|{SALT}|{base64.b64encode(digest).decode()}"


fields = st.one_of(lists, names.map(_hashed), st.sampled_from(["|1|", "|1|x|y", f"|1|{SALT}|", "|2|a|b", "#a", "@a"]))
lines = st.one_of(
    st.builds("{}{}{}{}{}".format, st.sampled_from(["", " ", "\t"]), markers, fields, blanks, keys),
    st.text("ab @#|1!,\t", max_size=12),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.lists(lines, max_size=6), name=targets)
def test_lines_of_a_name_are_those_that_ssh_keygen_finds(text, name, tmp_path):
    path = tmp_path / "known"
    path.write_text("\n".join(text) + "\n")
    done = subprocess.run(["ssh-keygen", "-l", "-F", name, "-f", path], capture_output=True, text=True)
    truth = [int(number) for number in re.findall(r"^# Host .* found: line (\d+)", done.stdout, re.MULTILINE)]
    assert [entry.line for entry in entries_for(name, [str(path)])] == truth, done.stdout + done.stderr
