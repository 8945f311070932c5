"""Logging in to a real sshd, with real keys, a real agent and real PAM services."""

import asyncio
import logging
import os
import re
import shutil
import socket
import subprocess
import threading
from dataclasses import replace

import paramiko
import pytest
from ssh_hosts.second_factor import WAYS_IN, Codes

from jupyter_slurm.errors import LoginDeclined, LoginFailed, from_problem
from jupyter_slurm.transport.ssh.gate import personal_gate
from jupyter_slurm.transport.ssh.login import log_in
from jupyter_slurm.transport.ssh.prompts import Asker
from jupyter_slurm.transport.ssh.ssh_config import Host, way_to

pytestmark = pytest.mark.root

PASSWORD = "correct horse 7 Ω"


class Person:
    """Answers prompts in turn; each answer is a list, None (declines), or a function that makes it."""

    def __init__(self, *answers):
        self.answers, self.asked, self.taken_back = list(answers), [], []

    async def ask(self, prompt):
        self.asked.append(prompt)
        if not prompt.questions:
            try:
                await asyncio.Event().wait()
            finally:
                self.taken_back.append(prompt)
        answer = self.answers.pop(0)
        if callable(answer):
            answer = answer()
        return await answer if asyncio.iscoroutine(answer) else answer

    @property
    def kinds(self):
        return [prompt.kind for prompt in self.asked]


@pytest.fixture(scope="module")
def user(new_user):
    return new_user(password=PASSWORD)


class Door:
    """One host, one user, and whoever is asked."""

    def __init__(self, sshd, user, tmp_path):
        self.sshd, self.user, self.folder = sshd, user, tmp_path
        self.host = Host("login", "login.example", user=user, through=("gate",))
        self.authorized = tmp_path / "authorized_keys"
        self.authorized.write_text("")
        tmp_path.chmod(0o755)
        for parent in (tmp_path.parent, tmp_path.parent.parent, sshd.folder):
            parent.chmod(0o755)
        self.configure()
        self.transport = None

    def configure(self, *lines, pam=None):
        """Set words of sshd_config; keys alone open it where they do not say more."""
        keys_only = ("PasswordAuthentication no", "KbdInteractiveAuthentication no")  # the first value wins
        self.sshd.configure(f"AuthorizedKeysFile {self.authorized}", *lines, *keys_only, pam=pam)

    def allow(self, *names, kind="ed25519"):
        with self.authorized.open("a") as file:
            file.writelines(f"{self.sshd.public(name, kind)} {name}\n" for name in names)

    def key(self, name, kind="ed25519", *options, allow=True):
        path = str(self.sshd.key(name, kind, *options))
        if allow:
            self.allow(name, kind=kind)
        return path

    async def open(self, person, **changes):
        host = replace(self.host, **changes)
        self.transport = paramiko.Transport(self.sshd.connect())
        asker = Asker(person, asyncio.get_running_loop())

        def work():
            self.transport.start_client(timeout=30)
            log_in(self.transport, host, asker)

        await asyncio.to_thread(work)
        assert self.transport.is_authenticated()
        channel = await asyncio.to_thread(self.transport.open_session)
        channel.exec_command("id -un")
        assert (await asyncio.to_thread(channel.makefile().read)).decode().split() == [self.user]

    async def refused(self, person, kind=LoginFailed, **changes):
        with pytest.raises(kind) as caught:
            await self.open(person, **changes)
        error = caught.value
        assert "login" in error.message
        assert error.hint
        assert error.details["host"] == "login"
        assert type(from_problem(error.to_problem())) is kind
        assert not self.transport.is_authenticated()
        return error


@pytest.fixture
def door(piped_sshd, user, tmp_path):
    door = Door(piped_sshd, user, tmp_path)
    yield door
    if door.transport is not None:
        door.transport.close()


@pytest.fixture
def agent(tmp_path):
    """A real ssh-agent: ``agent(*keys)`` adds keys and returns its socket."""
    path = tmp_path / "agent.sock"
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as process:
        while not path.exists():
            assert process.poll() is None

        def add(*keys, options=()):
            env = {**os.environ, "SSH_AUTH_SOCK": str(path)}
            if keys:
                subprocess.run(["ssh-add", "-q", *options, *keys], env=env, check=True, capture_output=True)
            return str(path)

        yield add
        process.terminate()


# Keys


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
async def test_key(door, kind):
    await door.open(Person(), identity_files=("/not/there", door.key("k", kind)))


async def test_keys_without_a_public_file(door):
    path = door.key("k", "rsa", "-m", "PEM")
    os.unlink(f"{path}.pub")
    await door.open(Person(), identity_files=(path,))


@pytest.mark.parametrize("algorithm", ["rsa-sha2-256", "rsa-sha2-512"])
async def test_signature_is_one_that_both_sides_take(door, algorithm):
    path = door.key("k", "rsa")
    door.configure(f"PubkeyAcceptedAlgorithms {algorithm}")
    await door.open(Person(), identity_files=(path,), pubkey_algorithms=("ssh-ed25519", algorithm))


async def test_algorithms_that_the_configuration_leaves_out(door):
    error = await door.refused(Person(), identity_files=(door.key("k", "rsa"),), pubkey_algorithms=("ssh-ed25519",))
    assert "left out by PubkeyAcceptedAlgorithms" in error.message


FORMATS = {"openssh": (), "pem": ("-m", "PEM"), "pkcs8": ("-m", "PKCS8"), "gcm": ("-Z", "aes256-gcm@openssh.com")}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("public", [True, False])
async def test_key_with_passphrase(door, form, public):
    path = door.key("k", "rsa", "-N", "let me in", *FORMATS[form])
    if not public:
        os.unlink(f"{path}.pub")
    person = Person(["wrong"], ["let me in"])
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
    await door.open(Person(), identity_files=(unwanted, door.key("k")))


async def test_passphrase_left_empty_goes_on_to_the_next_key(door):
    locked = door.key("locked", "ed25519", "-N", "locked")
    person = Person([""])
    await door.open(person, identity_files=(locked, door.key("k")))
    assert person.kinds == ["passphrase"]


async def test_passphrase_is_asked_as_often_as_the_configuration_says(door):
    person = Person(["a"], ["b"])
    locked = door.key("locked", "ed25519", "-N", "locked")
    error = await door.refused(person, identity_files=(locked,), password_prompts=2)
    assert "no passphrase opened it" in error.message
    assert person.answers == []


async def test_key_that_others_may_read_is_not_used(door):
    path = door.key("k")
    os.chmod(path, 0o640)
    error = await door.refused(Person(), identity_files=(path,))
    assert f"chmod 600 {path}" in error.message


async def test_files_that_are_no_keys_are_passed_over(door, tmp_path):
    (tmp_path / "junk").write_bytes(b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n")
    (tmp_path / "empty").write_text("")
    for name in ("junk", "empty"):
        (tmp_path / name).chmod(0o600)
    files = (str(tmp_path / "junk"), str(tmp_path / "empty"), str(tmp_path), door.key("k"))
    await door.open(Person(), identity_files=files)


async def test_no_key_at_all_says_how_to_get_one(door):
    error = await door.refused(Person())
    assert "publickey" in error.message
    assert "jupyter slurm init" in error.hint


async def test_refused_key_says_where_to_put_it(door):
    error = await door.refused(Person(), identity_files=(door.key("k", allow=False),))
    assert error.details["tried"] == [f"key {door.sshd.folder / 'k'}: refused"]
    assert "ssh-copy-id login" in error.hint


async def test_two_keys_where_the_host_wants_two(door):
    door.configure("AuthenticationMethods publickey,publickey")
    await door.open(Person(), identity_files=(door.key("one"), door.key("two")))


# The agent


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
async def test_key_in_the_agent(door, agent, kind):
    socket = agent(door.key("k", kind))
    await door.open(Person(), identity_agent=socket)


async def test_locked_key_that_the_agent_holds_asks_nothing(door, agent):
    path = door.key("k")
    socket = agent(path)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "locked", "-f", path], check=True)
    await door.open(Person(), identity_agent=socket, identity_files=(path,))


async def test_agent_that_is_gone_is_said(door):
    error = await door.refused(Person(), identity_agent="/not/there")
    assert "agent /not/there: No such file or directory" in error.message


async def test_agent_that_refuses_to_sign_is_passed_over(door, agent, monkeypatch):
    monkeypatch.setenv("SSH_ASKPASS", "/bin/false")
    path = door.key("asks")
    socket = agent(path, options=["-c"])  # wants a yes for each use, and nobody is there
    error = await door.refused(Person(), identity_agent=socket)
    assert "the agent did not sign" in error.message
    await door.open(Person(), identity_agent=socket, identity_files=(door.key("k"),))


async def test_too_many_keys_in_the_agent_and_the_cure(door, agent):
    socket = agent(*(door.key(f"k{n}", allow=False) for n in range(7)))
    right = door.key("right")
    error = await door.refused(Person(), identity_agent=socket, identity_files=(right,))
    assert "Too many authentication failures" in error.message
    assert "IdentitiesOnly yes" in error.hint
    assert len(error.details["tried"]) == 5
    await door.open(Person(), identity_agent=socket, identity_files=(right,), identities_only=True)


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
    await door.open(Person(), **how)
    assert "ED25519 SHA256" not in door.sshd.log() or "Accepted certificate ID" in door.sshd.log()
    assert "Accepted certificate ID" in door.sshd.log()


async def test_expired_certificate_is_said(door):
    door.sshd.key("ca")
    door.configure(f"TrustedUserCAKeys {door.sshd.folder / 'ca.pub'}")
    path = door.key("k", allow=False)
    door.sshd.certify("k", "ca", "-n", door.user, "-V", "20200101:20210101")
    error = await door.refused(Person(), identity_files=(path,))
    assert f"certificate {path}-cert.pub: refused (it has expired)" in error.details["tried"]
    assert "get a new one" in error.hint


async def test_certificate_without_its_key_is_said(door):
    door.sshd.key("ca")
    door.configure(f"TrustedUserCAKeys {door.sshd.folder / 'ca.pub'}")
    door.key("k", allow=False)
    certificate = str(door.sshd.certify("k", "ca", "-n", door.user))
    error = await door.refused(Person(), certificate_files=(certificate,))
    assert "its private key is neither in the agent nor among the IdentityFiles" in error.message


# The order of OpenSSH

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
    """What sshd says of each attempt is the same for OpenSSH and for us."""
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
    config = door.folder / "config"
    config.write_text(
        "\n".join([*lines, f"IdentityAgent {socket}", f"User {door.user}", "HostName login.example"])
        + "\nUserKnownHostsFile /dev/null\n"
    )
    argv = ["ssh", "-T", "-F", config, "-o", f"ProxyCommand={door.sshd.command}", "-o", "BatchMode=yes"]
    subprocess.run([*argv, "-o", "StrictHostKeyChecking=no", "login", "true"], capture_output=True)
    theirs, before = _offered(door), len(door.sshd.log())
    (host,) = await way_to("login", config_file=str(config))
    door.host = replace(host, proxy_command=None)
    with pytest.raises(LoginFailed):
        await door.open(Person())
    assert _offered(door, before) == theirs
    assert theirs


def _offered(door, start=0):
    return re.findall(
        r"^Failed publickey for \S+ from .* ssh2: (\S+ SHA256:\S+)", door.sshd.log()[start:], re.MULTILINE
    )


# Passwords


@pytest.fixture
def passwords(door):
    door.configure("PasswordAuthentication yes", "KbdInteractiveAuthentication no", "PubkeyAuthentication no")
    return door


async def test_password(passwords):
    person = Person([PASSWORD])
    await passwords.open(person)
    (prompt,) = person.asked
    assert prompt.kind == "password"
    assert prompt.host == f"login ({passwords.user}@login.example, through gate)"
    assert not prompt.questions[0].echo


async def test_wrong_passwords_and_then_the_right_one(passwords):
    person = Person(["no"], [""], [PASSWORD])
    await passwords.open(person)
    assert ["Try again" in prompt.instruction for prompt in person.asked] == [False, True, True]


async def test_wrong_passwords_end(passwords):
    person = Person(["no"], ["nein"], ["non"])
    error = await passwords.refused(person)
    assert error.details["tried"] == ["password: wrong"] * 3
    assert f"Is {passwords.user} your name there" in error.hint


async def test_server_that_allows_fewer_attempts(passwords):
    passwords.configure("PasswordAuthentication yes", "PubkeyAuthentication no", "MaxAuthTries 2")
    error = await passwords.refused(Person(["no"], ["nein"], ["non"]))
    assert "after 2 attempts" in error.message
    assert "Too many authentication failures" in error.message
    assert "MaxAuthTries" in error.hint


async def test_keys_come_before_passwords(door):
    door.configure("PasswordAuthentication yes")
    person = Person([PASSWORD])
    await door.open(person, identity_files=(door.key("k", allow=False),))
    assert person.kinds == ["password"]
    await door.open(Person(), identity_files=(door.key("right"),))


async def test_preferred_authentications(door):
    door.configure("PasswordAuthentication yes")
    person = Person([PASSWORD])
    await door.open(person, identity_files=(door.key("k"),), authentications=("password", "publickey"))
    assert person.kinds == ["password"]


async def test_methods_that_the_configuration_switches_off(passwords):
    error = await passwords.refused(Person(), authentications=("publickey",))
    assert "switched off in ~/.ssh/config: password" in error.hint


async def test_batch_mode_asks_nobody(passwords):
    error = await passwords.refused(Person(), batch_mode=True)
    assert "BatchMode" in error.hint


async def test_methods_that_only_openssh_has(door):
    door.configure("HostbasedAuthentication yes", "AuthenticationMethods hostbased")
    error = await door.refused(Person(), identity_files=(door.key("k"),))
    assert 'carrier = "openssh"' in error.hint


async def test_banner_is_shown_once_and_without_tricks(passwords):
    (passwords.sshd.folder / "banner").write_bytes(b"Welcome\x1b[2J to \xe2\x80\xaeus\n")
    passwords.configure(
        "PasswordAuthentication yes", "PubkeyAuthentication no", f"Banner {passwords.sshd.folder}/banner"
    )
    person = Person(["no"], [PASSWORD])
    await passwords.open(person)
    assert person.asked[0].instruction == "Welcome[2J to us"
    assert "Welcome" not in person.asked[1].instruction


# What PAM asks


def second_factor(door, way):
    codes = Codes(door.sshd.etc, door.user)
    options = [f"{name} {value}" for name, value in WAYS_IN[way].options().items()]
    door.configure("PasswordAuthentication no", *options, pam=WAYS_IN[way].pam)
    return codes


async def test_one_time_code(door):
    codes = second_factor(door, "code")
    person = Person([codes.next()])
    await door.open(person)
    (prompt,) = person.asked
    assert prompt.kind == "keyboard-interactive"
    assert "code" in prompt.questions[0].text.lower()
    assert codes.used == 1


async def test_password_and_then_a_code(door):
    codes = second_factor(door, "password+code")
    person = Person([PASSWORD], [codes.next()])
    await door.open(person)
    assert [prompt.questions[0].text for prompt in person.asked] == ["Password:", "Verification code:"]


async def test_wrong_code_and_then_all_again(door):
    codes = second_factor(door, "password+code")
    person = Person([PASSWORD], ["000000"], [PASSWORD], lambda: [codes.next()])
    await door.open(person)
    assert "Try again" in person.asked[2].instruction
    assert [("Try again" in prompt.instruction) for prompt in person.asked] == [False, False, True, False]


async def test_wrong_codes_end(door):
    second_factor(door, "code")
    error = await door.refused(Person(["1"], ["2"], ["3"]))
    assert error.details["tried"] == ["questions of the host: not accepted"] * 3


async def test_key_and_then_a_code(door):
    codes = second_factor(door, "key+code")
    person = Person([codes.next()])
    path = door.key("k")
    await door.open(person, identity_files=(door.key("first", allow=False), path))
    assert person.kinds == ["keyboard-interactive"]


async def test_right_key_and_wrong_codes_say_which_was_wrong(door):
    second_factor(door, "key+code")
    error = await door.refused(Person(["1"], ["2"], ["3"]), identity_files=(path := door.key("k"),))
    assert error.details["tried"][:2] == [f"key {path}: accepted", "that was right, and the host wants more"]
    assert error.details["tried"][-1] == "questions of the host: not accepted"


async def test_key_and_then_a_push(door):
    codes = second_factor(door, "key+push")
    codes.put_phone_away()

    async def choose():
        threading.Timer(1, codes.press_yes).start()
        return ["1"]

    person = Person(choose)
    await door.open(person, identity_files=(door.key("k"),))
    (prompt,) = person.asked
    assert "1. Push to XXX-XXX-0042" in prompt.instruction
    assert prompt.questions[0].text == "Password:"


class Telling(paramiko.ServerInterface):
    """A server that tells something without asking; sshd never does, others do."""

    def __init__(self, allowed):
        self._allowed = allowed

    def get_allowed_auths(self, _):
        return "keyboard-interactive"

    def check_auth_interactive(self, *_):
        return paramiko.InteractiveQuery("Push", "Look at your telephone")

    def check_auth_interactive_response(self, _):
        self._allowed.wait(20)
        return paramiko.AUTH_SUCCESSFUL


@pytest.fixture
def telling(door):
    """Serve one connection, and return what opens it."""
    allowed = threading.Event()
    ours, theirs = socket.socketpair()
    server = paramiko.Transport(theirs)
    server.add_server_key(paramiko.RSAKey.from_private_key_file(door.key("server", "rsa", "-m", "PEM")))
    server.start_server(server=Telling(allowed), event=threading.Event())
    door.transport = paramiko.Transport(ours)
    yield allowed
    allowed.set()
    door.transport.close()
    server.close()


async def _log_in_there(door, person):
    asker = Asker(person, asyncio.get_running_loop())

    def work():
        door.transport.start_client(timeout=30)
        log_in(door.transport, door.host, asker)

    await asyncio.to_thread(work)


async def test_text_without_a_question_is_shown_while_the_server_waits(door, telling):
    class Reader(Person):
        async def ask(self, prompt):
            telling.set()
            return await super().ask(prompt)

    person = Reader()
    await _log_in_there(door, person)
    assert door.transport.is_authenticated()
    (prompt,) = person.asked
    assert (prompt.title, prompt.instruction, prompt.questions) == ("Push", "Look at your telephone", ())
    assert person.taken_back == [prompt]


async def test_person_declines_to_wait(door, telling):
    class Declines(Person):
        async def ask(self, prompt):
            return None

    with pytest.raises(LoginDeclined):
        await _log_in_there(door, Declines())


# A person who does not answer


@pytest.mark.parametrize("answer", [None, [], ["one", "two"]])
async def test_person_declines_a_password(passwords, answer):
    error = await passwords.refused(Person(answer), LoginDeclined)
    assert "was not answered" in error.message


async def test_person_declines_a_passphrase(door):
    await door.refused(Person(None), LoginDeclined, identity_files=(door.key("k", "ed25519", "-N", "locked"),))


async def test_person_declines_a_code(door):
    second_factor(door, "code")
    await door.refused(Person(None), LoginDeclined)


async def test_server_that_does_not_wait_so_long_takes_the_question_back(passwords):
    passwords.configure("PasswordAuthentication yes", "PubkeyAuthentication no", "LoginGraceTime 1")
    back = asyncio.Event()

    async def never():
        try:
            await asyncio.Event().wait()
        finally:
            back.set()

    person = Person(never)
    error = await passwords.refused(person)
    await asyncio.wait_for(back.wait(), 10)
    assert "ended the log-in" in error.message


async def test_server_that_dies_while_it_is_asked(passwords):
    async def kill():
        passwords.sshd.close()
        return [PASSWORD]

    error = await passwords.refused(Person(kill))
    assert "ended the log-in" in error.message


async def test_link_that_is_closed_ends_the_log_in(passwords):
    async def close():
        passwords.transport.close()
        await asyncio.Event().wait()

    await passwords.refused(Person(close))


async def test_prompter_that_fails_is_not_swallowed(passwords):
    async def fail():
        raise RuntimeError("no window")

    with pytest.raises(RuntimeError, match="no window"):
        await passwords.open(Person(fail))


# Nothing secret


async def test_nothing_secret_in_logs_errors_or_what_is_left(door, caplog):
    caplog.set_level(logging.DEBUG)
    codes = second_factor(door, "password+code")
    locked = door.key("k", "ed25519", "-N", "the passphrase", allow=False)
    error = await door.refused(Person([PASSWORD], ["123456"], [PASSWORD], ["234567"], [PASSWORD], ["345678"]))
    code = codes.next()
    await door.open(Person([PASSWORD], [code]), identity_files=(locked,))
    handler = door.transport.auth_handler
    told = [
        caplog.text,
        str(error),
        repr(error),
        str(error.to_problem()),
        repr(vars(handler)),
        repr(handler),
        str(vars(door.transport)),
    ]
    for secret in (PASSWORD, "the passphrase", code, "123456", "234567"):
        assert not any(secret in text for text in told)
    caplog.clear()
    door.allow("k")
    door.configure("PasswordAuthentication no")
    await door.open(Person(["the passphrase"]), identity_files=(locked,))
    assert "the passphrase" not in caplog.text + repr(vars(door.transport.auth_handler))


# All together


async def test_gate_asks_for_an_unknown_host_and_then_logs_in(door, tmp_path):
    known = tmp_path / "known_hosts"
    host = replace(door.host, user_known_hosts=(str(known),), identity_files=(door.key("k"),))
    person = Person(["yes"])
    gate = personal_gate(person)
    for _ in range(2):
        transport = door.transport = paramiko.Transport(door.sshd.connect())

        def work(transport=transport):
            transport.get_security_options().key_types = [
                name for name in gate.key_types(host) if name in paramiko.Transport._key_info
            ]
            transport.start_client(timeout=30)
            gate.verify(host, transport.get_remote_server_key())
            gate.login(host, transport)

        await asyncio.to_thread(work)
        assert transport.is_authenticated()
        transport.close()
    assert person.kinds == ["host-key"]
    assert known.read_text() == f"login.example {door.sshd.public('host')}\n"
