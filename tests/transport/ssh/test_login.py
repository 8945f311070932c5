"""Login to a real sshd with answers of the user: passwords, and questions of real PAM services."""

import asyncio
import gc
import logging
import socket
import subprocess
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
from ssh_hosts.second_factor import WAYS_IN, Codes

from jupyter_slurm.errors import HostKeyChanged, HostKeyUnknown, LoginDeclined, TransportError
from jupyter_slurm.transport.ssh.auth.login import log_in
from jupyter_slurm.transport.ssh.hostkeys.host_key_verification import verify
from jupyter_slurm.transport.ssh.prompts import Asker
from jupyter_slurm.transport.ssh.protocols import LinkLost
from jupyter_slurm.transport.ssh.via_paramiko.connection import HostChain, HostVerifier
from jupyter_slurm.transport.ssh.via_paramiko.login_verification import login_verification

pytestmark = pytest.mark.root


# Passwords


@pytest.fixture
def passwords(door):
    door.configure("PasswordAuthentication yes", "KbdInteractiveAuthentication no", "PubkeyAuthentication no")
    return door


async def test_password(passwords):
    person = passwords.person([passwords.password])
    await passwords.open(person)
    (prompt,) = person.asked
    assert prompt.kind == "password"
    assert prompt.host == f"login ({passwords.user}@login.example, through gate)"
    assert not prompt.questions[0].echo


async def test_wrong_passwords_and_then_the_right_one(passwords):
    person = passwords.person(["no"], [""], [passwords.password])
    await passwords.open(person)
    assert ["Try again" in prompt.instruction for prompt in person.asked] == [False, True, True]


async def test_wrong_passwords_end(passwords):
    person = passwords.person(["no"], ["nein"], ["non"])
    error = await passwords.refused(person)
    assert error.details["tried"] == ["password: wrong"] * 3
    assert f"Check that {passwords.user} is your user name" in error.hint


async def test_server_that_allows_fewer_attempts(passwords):
    passwords.configure("PasswordAuthentication yes", "PubkeyAuthentication no", "MaxAuthTries 2")
    error = await passwords.refused(passwords.person(["no"], ["nein"], ["non"]))
    assert "after 2 attempts" in error.message
    assert "Too many authentication failures" in error.message
    assert "MaxAuthTries" in error.hint
    assert "reason" not in error.details, "it is no accident, and must not be tried again by itself"


async def test_keys_come_before_passwords(door):
    door.configure("PasswordAuthentication yes")
    person = door.person([door.password])
    await door.open(person, identity_files=(door.key("k", allow=False),))
    assert person.kinds == ["password"]
    await door.open(door.person(), identity_files=(door.key("right"),))


async def test_preferred_authentications(door):
    door.configure("PasswordAuthentication yes")
    person = door.person([door.password])
    await door.open(person, identity_files=(door.key("k"),), authentications=("password", "publickey"))
    assert person.kinds == ["password"]


async def test_methods_that_the_configuration_switches_off(passwords):
    error = await passwords.refused(passwords.person(), authentications=("publickey",))
    assert "in ~/.ssh/config for this host: password" in error.hint


async def test_batch_mode_asks_nobody(passwords):
    error = await passwords.refused(passwords.person(), batch_mode=True)
    assert "BatchMode" in error.hint


async def test_methods_that_only_openssh_has(door):
    door.configure("HostbasedAuthentication yes", "AuthenticationMethods hostbased")
    error = await door.refused(door.person(), identity_files=(door.key("k"),))
    assert "only OpenSSH" in error.hint


async def test_banner_is_shown_once_and_without_tricks(passwords):
    (passwords.sshd.folder / "banner").write_bytes(b"Welcome\x1b[2J to \xe2\x80\xaeus\n")
    passwords.configure(
        "PasswordAuthentication yes", "PubkeyAuthentication no", f"Banner {passwords.sshd.folder}/banner"
    )
    person = passwords.person(["no"], [passwords.password])
    await passwords.open(person)
    assert person.asked[0].instruction == "Welcome[2J to us"
    assert "Welcome" not in person.asked[1].instruction


async def test_what_a_host_says_when_it_lets_nobody_in_is_told(door):
    (door.sshd.folder / "nologin").write_text("Down until Monday\n")
    (door.sshd.folder / "banner").write_text("Welcome\n")
    pam = f"account required pam_nologin.so file={door.sshd.folder}/nologin\n"
    door.configure("UsePAM yes", f"Banner {door.sshd.folder}/banner", pam=pam)
    error = await door.refused(door.person(), identity_files=(door.key("k"),))
    assert "hung up\nDown until Monday\n" in error.message + "\n"
    assert "Welcome" not in error.message
    assert "ask the administrators" in error.hint


@pytest.mark.parametrize("asked", ["password", "passphrase"])
async def test_an_answer_that_is_no_utf8_is_not_shown(passwords, asked, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(logging.getLogger("paramiko"), "propagate", True)
    changes = {}
    if asked == "passphrase":
        passwords.configure("PubkeyAuthentication yes")
        changes = {"identity_files": (passwords.key("locked", "ed25519", "-N", "the passphrase"),)}
    person = passwords.person(["hunter2\udcfc"])
    error = await passwords.refused(person, **changes)
    assert person.kinds == [asked]
    assert "not UTF-8" in error.message
    assert "hunter2" not in caplog.text + repr(error.to_problem()) + repr(error.__context__)


# Questions of PAM


def second_factor(door, way):
    if not any(Path("/usr/lib").glob("**/security/pam_google_authenticator.so")):
        door.unavailable("not installed: libpam-google-authenticator")
    codes = Codes(door.sshd.etc, door.user)
    options = [f"{name} {value}" for name, value in WAYS_IN[way].options().items()]
    door.configure("PasswordAuthentication no", *options, pam=WAYS_IN[way].pam)
    return codes


async def test_one_time_code(door):
    codes = second_factor(door, "code")
    person = door.person([codes.next()])
    await door.open(person)
    (prompt,) = person.asked
    assert prompt.kind == "keyboard-interactive"
    assert "code" in prompt.questions[0].text.lower()
    assert codes.used == 1


async def test_password_and_then_a_code(door):
    codes = second_factor(door, "password+code")
    person = door.person([door.password], [codes.next()])
    await door.open(person)
    assert [prompt.questions[0].text for prompt in person.asked] == ["Password:", "Verification code:"]


async def test_a_password_that_must_be_changed_is_changed_in_the_questions(door, new_user):
    door.user = new_user(password=door.password)
    door.host = replace(door.host, user=door.user)
    modules = {"auth": "unix", "account": "unix", "password": "unix", "session": "permit"}
    pam = "".join(f"{kind} required pam_{module}.so\n" for kind, module in modules.items())
    way = ("UsePAM yes", "KbdInteractiveAuthentication yes", "AuthenticationMethods keyboard-interactive")
    door.configure("PasswordAuthentication no", *way, pam=pam)
    subprocess.run(["passwd", "--expire", door.user], check=True, capture_output=True)
    later = "Another horse 8 Ω"
    person = door.person([door.password], [door.password], [later], [later])
    await door.open(person)
    questions = [prompt.questions[0] for prompt in person.asked]
    assert "required to change your password" in person.asked[1].instruction
    assert [question.text for question in questions[1:]] == [
        "Current password:",
        "New password:",
        "Retype new password:",
    ]
    assert not any(question.echo for question in questions)
    await door.open(door.person([later]))


async def test_wrong_code_and_then_all_again(door):
    codes = second_factor(door, "password+code")
    person = door.person([door.password], ["000000"], [door.password], lambda: [codes.next()])
    await door.open(person)
    assert "Try again" in person.asked[2].instruction
    assert [("Try again" in prompt.instruction) for prompt in person.asked] == [False, False, True, False]


async def test_wrong_codes_end(door):
    second_factor(door, "code")
    error = await door.refused(door.person(["1"], ["2"], ["3"]))
    assert error.details["tried"] == ["questions of the host: not accepted"] * 3


async def test_key_and_then_a_code(door):
    codes = second_factor(door, "key+code")
    person = door.person([codes.next()])
    path = door.key("k")
    await door.open(person, identity_files=(door.key("first", allow=False), path))
    assert person.kinds == ["keyboard-interactive"]


async def test_right_key_and_wrong_codes_say_which_was_wrong(door):
    second_factor(door, "key+code")
    error = await door.refused(door.person(["1"], ["2"], ["3"]), identity_files=(path := door.key("k"),))
    assert error.details["tried"][:2] == [f"key {path}: accepted", "that was right, and the host wants more"]
    assert error.details["tried"][-1] == "questions of the host: not accepted"


async def test_key_and_then_a_push(door):
    codes = second_factor(door, "key+push")
    codes.put_phone_away()

    async def choose():
        threading.Timer(1, codes.press_yes).start()
        return ["1"]

    person = door.person(choose)
    await door.open(person, identity_files=(door.key("k"),))
    (prompt,) = person.asked
    assert "1. Push to XXX-XXX-0042" in prompt.instruction
    assert prompt.questions[0].text == "Password:"


class Telling(paramiko.ServerInterface):
    """A server that sends a notice without a question; sshd never does, others do."""

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
    """Serve one connection, and return a function that connects."""
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
    class Reader(door.person):
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
    class Declines(door.person):
        async def ask(self, prompt):
            return None

    with pytest.raises(LoginDeclined):
        await _log_in_there(door, Declines())


# A user who does not answer


@pytest.mark.parametrize("answer", [None, [], ["one", "two"]])
async def test_person_declines_a_password(passwords, answer):
    error = await passwords.refused(passwords.person(answer), LoginDeclined)
    assert "was not answered" in error.message


async def test_person_declines_a_passphrase(door):
    await door.refused(door.person(None), LoginDeclined, identity_files=(door.key("k", "ed25519", "-N", "locked"),))


async def test_person_declines_a_code(door):
    second_factor(door, "code")
    await door.refused(door.person(None), LoginDeclined)


async def test_server_that_does_not_wait_so_long_takes_the_question_back(passwords):
    passwords.configure("PasswordAuthentication yes", "PubkeyAuthentication no", "LoginGraceTime 1")
    back = asyncio.Event()

    async def never():
        try:
            await asyncio.Event().wait()
        finally:
            back.set()

    error = await passwords.refused(passwords.person(never), LoginDeclined)
    async with asyncio.timeout(10):
        await back.wait()
    assert "was not answered before it hung up" in error.message
    assert "reason" not in error.details, "who asks again at once would ask for ever"


@pytest.mark.parametrize("where", ["first", "behind"])
async def test_after_a_late_yes_to_a_key_it_connects_once_more(door, tmp_path, where):
    """On each host of the way: the key is known then, and the user is not asked again."""
    door.configure("LoginGraceTime 1")
    key, known = door.key("k"), tmp_path / "known"
    host = replace(
        door.host, identity_files=(key,), user_known_hosts=(str(known),), identities_only=True, identity_agent=None
    )
    gate, asked = login_verification(door.person()), []

    def late(prompt):
        asked.append(prompt)
        while chain._hops[-1].is_active():
            time.sleep(0.02)
        return ["yes"]

    def check(checked, key):
        verify(checked, key.asbytes(), late)

    class Chain(HostChain):
        def _socket(self, host):  # the piped host stands behind itself
            return door.sshd.connect()

    route = [host] if where == "first" else [replace(host, host_key_alias="gate"), host]
    chain = Chain(route, HostVerifier(check, gate.login))
    await asyncio.to_thread(chain.open)
    assert len(asked) == len(route)
    assert chain.is_alive
    assert len(chain._hops) == len(route)
    await asyncio.to_thread(chain.close)


async def test_server_that_dies_while_it_is_asked(passwords):
    async def kill():
        passwords.sshd.close()
        return [passwords.password]

    error = await passwords.refused(passwords.person(kill))
    assert "ended the login" in error.message
    assert error.details["reason"], "it may be better in a moment"


async def test_link_that_is_closed_ends_the_log_in(passwords):
    async def close():
        passwords.transport.close()
        await asyncio.Event().wait()

    await passwords.refused(passwords.person(close), LoginDeclined)


async def test_prompter_that_fails_is_not_swallowed(passwords):
    async def fail():
        raise RuntimeError("no window")

    with pytest.raises(RuntimeError, match="no window"):
        await passwords.open(passwords.person(fail))


# Secrecy


async def test_nothing_secret_in_logs_errors_or_what_is_left(door, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(logging.getLogger("paramiko"), "propagate", True)
    codes = second_factor(door, "password+code")
    locked = door.key("k", "ed25519", "-N", "the passphrase", allow=False)
    error = await door.refused(
        door.person([door.password], ["123456"], [door.password], ["234567"], [door.password], ["345678"])
    )
    code = codes.next()
    await door.open(door.person([door.password], [code]), identity_files=(locked,))
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
    for secret in (door.password, "the passphrase", code, "123456", "234567"):
        assert not any(secret in text for text in told)
    caplog.clear()
    door.allow("k")
    door.configure("PasswordAuthentication no")
    await door.open(door.person(["the passphrase"]), identity_files=(locked,))
    assert "the passphrase" not in caplog.text + repr(vars(door.transport.auth_handler))


class Secret(str):
    """A secret whose deletion is observable."""


def secret(text, alive):
    made = Secret(text)
    alive.append(weakref.ref(made))
    return [made]


async def test_answers_are_not_kept(door):
    """Check that neither a live connection nor a kept error holds an answer."""
    path, alive = door.key("k", "ed25519", "-N", "locked"), []
    codes = second_factor(door, "key+code")
    answers = [lambda: secret("locked", alive), lambda: secret("000000", alive), lambda: secret(codes.next(), alive)]
    await door.open(door.person(*answers), identity_files=(path,))
    assert len(alive) == 3
    gc.collect()
    assert [ref() for ref in alive] == [None] * 3
    wrong = [lambda: secret("wrong", alive)] * 3
    error = await door.refused(door.person(lambda: secret("locked", alive), *wrong), identity_files=(path,))
    door.configure("PasswordAuthentication yes", "PubkeyAuthentication no", "KbdInteractiveAuthentication no")

    def dies():
        door.sshd.close()
        return secret("secret", alive)

    errors = [error, await door.refused(door.person(dies))]
    errors.append(await door.refused(door.person(lambda: secret("wrong", alive), None), LoginDeclined))
    gc.collect()
    assert len(alive) == 9
    assert [ref() for ref in alive] == [None] * 9
    assert all(error.__context__ is None for error in errors)


# Complete logins


@pytest.mark.parametrize("certified", [False, True])
async def test_gate_of_a_connection(door, tmp_path, certified):
    """Check that a user confirms a key once, and never for a host with a certificate."""
    known = tmp_path / "known_hosts"
    if certified:
        authority = door.sshd.public("ca")
        door.configure(certificate=door.sshd.certify("host", "ca", "-h", "-n", "login.example"))
        known.write_text(f"@cert-authority *.example {authority}\n")
    host = replace(
        door.host,
        user_known_hosts=(str(known),),
        identity_files=(door.key("k"),),
        proxy_command=door.sshd.command,
        through=(),
    )
    person = door.person(["no"], ["yes"])
    gate = login_verification(person)
    if not certified:
        with pytest.raises(HostKeyUnknown):
            await asyncio.to_thread(HostChain([host], gate).open)
        assert "Accepted" not in door.sshd.log(), "nothing was told to it"
    for _ in range(2):
        chain = HostChain([host], gate)
        await asyncio.to_thread(chain.open)
        assert chain.last.is_authenticated()
        await asyncio.to_thread(chain.close)
    assert person.kinds == ([] if certified else ["host-key"] * 2)
    if not certified:
        assert known.read_text() == f"login.example {door.sshd.public('host')}\n"
        known.write_text(f"login.example {door.sshd.public('other')}\n")
        with pytest.raises(HostKeyChanged):
            await asyncio.to_thread(HostChain([host], gate).open)


@pytest.mark.parametrize("side", ["server", "configuration"])
async def test_algorithms_that_paramiko_lacks_are_not_taken_for_a_network_that_is_down(door, side):
    lacking = "sntrup761x25519-sha512@openssh.com"
    door.configure(*[f"KexAlgorithms {lacking}"] * (side == "server"))
    host = replace(door.host, kex=(lacking,) if side == "configuration" else (), proxy_command=door.sshd.command)
    with pytest.raises(TransportError, match="KexAlgorithms in" if side == "configuration" else "kex") as caught:
        await asyncio.to_thread(HostChain([host], login_verification(door.person())).open)
    assert not isinstance(caught.value, LinkLost), "it would be tried again for ever"
    assert 'carrier = "openssh"' in caught.value.hint
