"""Login to a real sshd with keys and certificates, from files and from a real agent, in OpenSSH's order."""

import os
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from jupyter_slurm.errors import LoginFailed
from jupyter_slurm.transport.ssh.config.ssh_config import resolve_route

pytestmark = pytest.mark.root


# Keys


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
async def test_key(door, kind):
    await door.open(door.person(), identity_files=("/not/there", door.key("k", kind)))


async def test_keys_without_a_public_file(door):
    path = door.key("k", "rsa", "-m", "PEM")
    os.unlink(f"{path}.pub")
    await door.open(door.person(), identity_files=(path,))


@pytest.mark.parametrize("algorithm", ["rsa-sha2-256", "rsa-sha2-512"])
async def test_signature_is_one_that_both_sides_take(door, algorithm):
    path = door.key("k", "rsa")
    door.configure(f"PubkeyAcceptedAlgorithms {algorithm}")
    await door.open(door.person(), identity_files=(path,), pubkey_algorithms=("ssh-ed25519", algorithm))


async def test_algorithms_that_the_configuration_leaves_out(door):
    error = await door.refused(
        door.person(), identity_files=(door.key("k", "rsa"),), pubkey_algorithms=("ssh-ed25519",)
    )
    assert "left out by PubkeyAcceptedAlgorithms" in error.message
    error = await door.refused(door.person(), identity_files=(door.key("k", "rsa"),), required_rsa_size=8192)
    assert "bits, and RequiredRSASize is 8192" in error.message


FORMATS = {"openssh": (), "pem": ("-m", "PEM"), "pkcs8": ("-m", "PKCS8"), "gcm": ("-Z", "aes256-gcm@openssh.com")}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("public", [True, False])
async def test_key_with_passphrase(door, form, public):
    path = door.key("k", "rsa", "-N", "let me in", *FORMATS[form])
    if not public:
        os.unlink(f"{path}.pub")
    person = door.person(["wrong"], ["let me in"])
    await door.open(person, identity_files=(path,))
    assert person.kinds == ["passphrase", "passphrase"]
    first, second = person.asked
    assert path in first.questions[0].text
    assert not first.questions[0].echo
    assert "gate" in first.host
    assert "wrong" not in first.instruction
    assert "wrong" in second.instruction


async def test_passphrase_is_not_asked_for_a_key_that_is_not_wanted(door):
    unwanted = door.key("other", "ed25519", "-N", "locked", allow=False)
    await door.open(door.person(), identity_files=(unwanted, door.key("k")))


async def test_passphrase_left_empty_goes_on_to_the_next_key(door):
    locked = door.key("locked", "ed25519", "-N", "locked")
    person = door.person([""])
    await door.open(person, identity_files=(locked, door.key("k")))
    assert person.kinds == ["passphrase"]


async def test_passphrase_is_asked_as_often_as_the_configuration_says(door):
    person = door.person(["a"], ["b"])
    locked = door.key("locked", "ed25519", "-N", "locked")
    error = await door.refused(person, identity_files=(locked,), password_prompts=2)
    assert "no passphrase opened it" in error.message
    assert person.answers == []


async def test_key_that_others_may_read_is_not_used(door):
    path = door.key("k")
    os.chmod(path, 0o640)
    error = await door.refused(door.person(), identity_files=(path,))
    assert f"chmod 600 {path}" in error.message


async def test_files_that_are_no_keys_are_passed_over(door, tmp_path):
    (tmp_path / "junk").write_bytes(b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n")
    (tmp_path / "empty").write_text("")
    for name in ("junk", "empty"):
        (tmp_path / name).chmod(0o600)
    files = (str(tmp_path / "junk"), str(tmp_path / "empty"), str(tmp_path), door.key("k"))
    await door.open(door.person(), identity_files=files)


async def test_no_key_at_all_says_how_to_get_one(door):
    error = await door.refused(door.person())
    assert "publickey" in error.message
    assert "jupyter slurm init" in error.hint


async def test_refused_key_says_where_to_put_it(door):
    error = await door.refused(door.person(), identity_files=(door.key("k", allow=False),))
    assert error.details["tried"] == [f"key {door.sshd.folder / 'k'}: refused"]
    assert "ssh-copy-id" not in error.hint, "it could not log in: the host accepts only keys"
    assert "give your public key to the site" in error.hint
    assert "for Host login" in error.hint
    door.configure("PasswordAuthentication yes")
    allowed = ("publickey",)
    error = await door.refused(door.person(), identity_files=(door.key("k2", allow=False),), authentications=allowed)
    assert f"`ssh-copy-id {door.user}@login`" in error.hint


async def test_two_keys_where_the_host_wants_two(door):
    door.configure("AuthenticationMethods publickey,publickey")
    await door.open(door.person(), identity_files=(door.key("one"), door.key("two")))


# The agent


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
async def test_key_in_the_agent(door, agent, kind):
    socket = agent(door.key("k", kind))
    await door.open(door.person(), identity_agent=socket)


async def test_locked_key_that_the_agent_holds_asks_nothing(door, agent):
    path = door.key("k")
    socket = agent(path)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "locked", "-f", path], check=True)
    await door.open(door.person(), identity_agent=socket, identity_files=(path,))


async def test_public_key_names_the_one_in_the_agent(door, agent):
    others = [door.key(f"k{n}", allow=False) for n in range(7)]
    path = door.key("right")
    socket = agent(*others, path)
    os.rename(path, f"{path}.elsewhere")
    how = {"identity_files": (f"{path}.pub",), "identities_only": True}
    await door.open(door.person(), identity_agent=socket, **how)
    error = await door.refused(door.person(), **how)
    assert "it is not a private key, and the agent does not hold one for it" in error.message


async def test_agent_that_is_gone_is_said(door):
    error = await door.refused(door.person(), identity_agent="/not/there")
    assert "agent /not/there: No such file or directory" in error.message
    assert "agent stop" in error.hint, "ours has the one of the terminal in which it was started"


async def test_agent_that_refuses_to_sign_is_passed_over(door, agent, monkeypatch):
    monkeypatch.setenv("SSH_ASKPASS", "/bin/false")
    path = door.key("asks")
    socket = agent(path, options=["-c"])  # needs a confirmation for each use, and no user is present
    error = await door.refused(door.person(), identity_agent=socket)
    assert "the agent did not sign" in error.message
    await door.open(door.person(), identity_agent=socket, identity_files=(door.key("k"),))


async def test_too_many_keys_in_the_agent_and_the_cure(door, agent):
    socket = agent(*(door.key(f"k{n}", allow=False) for n in range(7)))
    right = door.key("right")
    error = await door.refused(door.person(), identity_agent=socket, identity_files=(right,))
    assert "Too many authentication failures" in error.message
    assert "IdentitiesOnly yes" in error.hint
    assert len(error.details["tried"]) == 5
    await door.open(door.person(), identity_agent=socket, identity_files=(right,), identities_only=True)


# Certificates


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
@pytest.mark.parametrize("place", ["beside", "named", "key-in-agent", "all-in-agent"])
async def test_certificate(door, agent, kind, place):
    door.sshd.key("ca")
    door.configure(f"TrustedUserCAKeys {door.sshd.folder / 'ca.pub'}")
    path = door.key("k", kind, allow=False)
    certificate = str(door.sshd.certify("k", "ca", "-n", door.user, suffix="-elsewhere" if place != "beside" else ""))
    if place == "all-in-agent":
        shutil.copy(certificate, f"{path}-cert.pub")
    how = {
        "beside": {"identity_files": (path,)},
        "named": {"identity_files": (path,), "certificate_files": (certificate,)},
        "key-in-agent": {"identity_agent": agent(path), "certificate_files": (certificate,)} if "key" in place else {},
        "all-in-agent": {"identity_agent": agent(path)} if "all" in place else {},
    }[place]
    await door.open(door.person(), **how)
    assert "ED25519 SHA256" not in door.sshd.log() or "Accepted certificate ID" in door.sshd.log()
    assert "Accepted certificate ID" in door.sshd.log()


async def test_expired_certificate_is_said(door):
    door.sshd.key("ca")
    door.configure(f"TrustedUserCAKeys {door.sshd.folder / 'ca.pub'}")
    path = door.key("k", allow=False)
    door.sshd.certify("k", "ca", "-n", door.user, "-V", "20200101:20210101")
    error = await door.refused(door.person(), identity_files=(path,))
    assert f"certificate {path}-cert.pub: refused (it has expired)" in error.details["tried"]
    assert "Get a new certificate" in error.hint


async def test_certificate_without_its_key_is_said(door):
    door.sshd.key("ca")
    door.configure(f"TrustedUserCAKeys {door.sshd.folder / 'ca.pub'}")
    door.key("k", allow=False)
    certificate = str(door.sshd.certify("k", "ca", "-n", door.user))
    error = await door.refused(door.person(), certificate_files=(certificate,))
    assert "its private key is neither in the agent nor among the IdentityFiles" in error.message


# OpenSSH's order

ORDERS = {
    "files": {"files": ["a", "b"], "agent": []},
    "agent": {"files": [], "agent": ["a", "b"]},
    "both": {"files": ["a", "b"], "agent": ["c", "d"]},
    "agent-has-a-file": {"files": ["a", "b", "c"], "agent": ["d", "c", "a"]},
    "only": {"files": ["a", "b"], "agent": ["d", "b"], "only": True},
    "beside": {"files": ["a", "b"], "agent": ["c"], "beside": ["b"]},
    "named": {"files": ["a", "b"], "agent": ["c", "b"], "named": ["b"]},
    "named-and-beside": {"files": ["a", "b"], "agent": [], "named": ["b"], "beside": ["a"]},
    "agent-has-certificate": {"files": ["a", "b"], "agent": ["c", "b"], "beside": ["b"]},
}


@pytest.mark.parametrize("case", ORDERS)
async def test_keys_are_offered_in_the_order_of_openssh(case, door, agent):
    """Check that sshd logs the same attempts for OpenSSH and for jupyter_slurm."""
    chosen = {"only": False, "beside": [], "named": [], **ORDERS[case]}
    door.configure("MaxAuthTries 20")
    door.sshd.key("ca")
    paths = {name: door.key(name, allow=False) for name in "abcd"}
    for name in chosen["beside"]:
        door.sshd.certify(name, "ca", "-n", door.user)
    named = [str(door.sshd.certify(name, "ca", "-n", door.user, suffix="-named")) for name in chosen["named"]]
    socket = agent(*(paths[name] for name in chosen["agent"]))
    lines = [f"IdentityFile {paths[name]}" for name in chosen["files"]] or ["IdentityFile none"]
    lines += [f"CertificateFile {path}" for path in named] + [f"IdentitiesOnly {'yes' if chosen['only'] else 'no'}"]
    config = door.sshd.folder / "config"
    config.write_text(
        "\n".join([*lines, f"IdentityAgent {socket}", f"User {door.user}", "HostName login.example"])
        + "\nUserKnownHostsFile /dev/null\n"
    )
    argv = ["ssh", "-T", "-F", config, "-o", f"ProxyCommand={door.sshd.command}", "-o", "BatchMode=yes"]
    subprocess.run([*argv, "-o", "StrictHostKeyChecking=no", "login", "true"], capture_output=True)
    theirs, before = _offered(door), len(door.sshd.log())
    (host,) = await resolve_route("login", config_file=str(config))
    door.host = replace(host, proxy_command=None)
    with pytest.raises(LoginFailed):
        await door.open(door.person())
    assert _offered(door, before) == theirs
    assert theirs


def _offered(door, start=0):
    return re.findall(
        r"^Failed publickey for \S+ from .* ssh2: (\S+ SHA256:\S+)", door.sshd.log()[start:], re.MULTILINE
    )
