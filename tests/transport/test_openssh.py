"""What OpenSSH as carrier promises beyond what both do: log-ins that outlive us, and masters of the person."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import paramiko
import pytest
from ssh_hosts.sshd import new_key

from jupyter_slurm.errors import HostKeyChanged, HostKeyUnknown, LoginDeclined, LoginFailed, TransportError
from jupyter_slurm.transport.base import Completed
from jupyter_slurm.transport.ssh import openssh
from jupyter_slurm.transport.ssh.base import LinkLost
from jupyter_slurm.transport.ssh.openssh import OpenSshLink, Target, end_kept
from jupyter_slurm.transport.ssh.openssh_login import Login
from jupyter_slurm.transport.ssh.ssh_config import way_to
from jupyter_slurm.transport.ssh.survey import count_sessions, has_sftp
from jupyter_slurm.transport.ssh.transport import SshTransport

pytestmark = pytest.mark.root


class Person:
    """Whoever answers: the next of some answers, or what they return."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    async def ask(self, prompt):
        self.asked.append(prompt)
        if not prompt.questions:
            return []
        assert self.answers, f"nobody knows what to say to {prompt}"
        answer = self.answers.pop(0)
        return answer if answer is None else [answer() if callable(answer) else answer]


@pytest.fixture
def folder(short_tmp):
    return tempfile.mkdtemp(prefix="o", dir=short_tmp)


@pytest.fixture
async def log_in(folder):
    """``log_in(config, name, person, **options)``: a transport; at the end the log-in is ended, too."""
    made = []

    async def make(config, name, person, *, options=(), **more):
        way = await way_to(name, config_file=str(config))
        target = Target(name, tuple(options), str(config))
        link = OpenSshLink(target, way, person, folder, **{"told": lambda line: None, "pause": 0.1, **more})
        made.append((SshTransport(link), target, way))
        return made[-1][0]

    yield make
    for transport, target, way in made:
        transport.close()
        await asyncio.to_thread(end_kept, target, way, folder)


@pytest.fixture
def config(tmp_path):
    """``config(host, *lines)``: another configuration of a host than its own."""

    def make(host, *lines):
        path = tmp_path / f"config{len(os.listdir(tmp_path))}"
        path.write_text(host.client_entry(*lines))
        return path

    return make


def masters(folder):
    """Return the processes that have a control socket in a folder."""
    found = subprocess.run(["pgrep", "-f", f"ssh .*-S {folder}/"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


async def gone(folder):
    async with asyncio.timeout(10):
        while masters(folder):
            await asyncio.sleep(0.05)


# Log-ins that outlive us -----------------------------------------------------------------------------------------


_KILLED = """
import asyncio, sys
from jupyter_slurm.transport.ssh.openssh import OpenSshLink, Target
from jupyter_slurm.transport.ssh.ssh_config import way_to
from jupyter_slurm.transport.ssh.survey import count_sessions, has_sftp
from jupyter_slurm.transport.ssh.transport import SshTransport

class Person:
    async def ask(self, prompt):
        print("asked", prompt.host, flush=True)
        return [sys.stdin.readline().strip()]

async def main(config, folder):
    way = await way_to("login", config_file=config)
    transport = SshTransport(OpenSshLink(Target("login", (), config), way, Person(), folder))
    print((await transport.run(["hostname"])).stdout.decode().strip(), flush=True)
    await transport.run(["sleep", "1000"], timeout=None)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slurm
async def test_a_log_in_with_a_code_survives_that_its_process_is_killed(ssh_site, folder, log_in):
    used = ssh_site.codes.used
    argv = [sys.executable, "-c", _KILLED, str(ssh_site.ssh_config), folder]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            asked = await asyncio.to_thread(process.stdout.readline)
            assert asked.startswith("asked gateway (")
            process.stdin.write(ssh_site.codes.next() + "\n")
            process.stdin.flush()
            assert (await asyncio.to_thread(process.stdout.readline)).strip() == "login1"
        finally:
            process.send_signal(signal.SIGKILL)
    assert len(masters(folder)) == 1
    transport = await log_in(ssh_site.ssh_config, "login", Person())
    assert (await transport.run(["hostname"])).stdout == b"login1\n"
    assert ssh_site.codes.used == used + 1
    transport.close()
    await gone(folder)
    assert sorted(name.rpartition(".")[2] for name in os.listdir(folder)) == ["askpass", "conf", "lock", "log"]


async def test_what_is_let_go_is_found_again_and_ends_when_that_is_said(login_node, folder, log_in):
    one = await log_in(login_node.ssh_config, login_node.name, Person())
    await one.run(["true"])
    (master,) = masters(folder)
    one.close(keep=True)
    again = await log_in(login_node.ssh_config, login_node.name, Person())
    await again.run(["true"])
    assert masters(folder) == [master]
    again.close()
    await gone(folder)


@pytest.mark.parametrize("ends", [False, True])
async def test_who_leaves_while_it_logs_in_leaves_nothing_open(login_node, folder, monkeypatch, ends):
    way = await way_to(login_node.name, config_file=str(login_node.ssh_config))
    target = Target(login_node.name, (), str(login_node.ssh_config))
    link = OpenSshLink(target, way, Person(), folder)
    master = link.new_connection()
    log_in = Login.run

    def run(login):
        log_in(login)
        (master.close if ends else master.leave)()  # from another thread, in this moment

    monkeypatch.setattr(Login, "run", run)
    await asyncio.to_thread(master.open)
    assert not master.is_alive
    open_ones = [one for one in os.listdir("/proc/self/fd") if _leads_to(one, folder)]
    assert open_ones == []
    if ends:
        await gone(folder)
    await asyncio.to_thread(end_kept, target, way, folder)
    link.close()


def _leads_to(number, folder):
    """Whether a file of ours is a socket with its other end in a folder."""
    try:
        copy = os.dup(int(number))
    except OSError:
        return False
    try:
        end = socket.socket(fileno=copy)
    except OSError:  # no socket
        os.close(copy)
        return False
    with end, contextlib.suppress(OSError):  # no other end
        return str(end.getpeername()).startswith(folder)
    return False


async def test_the_age_of_a_log_in_counts_over_restarts(login_node, folder, log_in):
    one = await log_in(login_node.ssh_config, login_node.name, Person(), max_age=3600)
    await one.run(["true"])
    (master,), began = masters(folder), one._link.since
    one.close(keep=True)
    again = await log_in(login_node.ssh_config, login_node.name, Person(), max_age=3600)
    await again.run(["true"])
    assert masters(folder) == [master]
    assert abs(again._link.since - began) < 2
    again.close(keep=True)
    (path,) = (entry for entry in Path(folder).iterdir() if entry.is_socket())
    os.utime(path, (time.time() - 3700,) * 2)
    third = await log_in(login_node.ssh_config, login_node.name, Person(), max_age=3600)
    await third.run(["true"])
    assert masters(folder) != [master]
    assert len(masters(folder)) == 1
    assert time.time() - third._link.since < 60


async def test_two_at_once_share_one_log_in(login_node, folder, log_in):
    pair = [await log_in(login_node.ssh_config, login_node.name, Person()) for _ in range(2)]
    await asyncio.gather(*(one.run(["true"]) for one in pair))
    assert len(masters(folder)) == 1


async def test_a_folder_that_others_can_write_to_is_refused(login_node, folder, log_in):
    os.chmod(folder, 0o777)
    transport = await log_in(login_node.ssh_config, login_node.name, Person())
    with pytest.raises(TransportError, match="yours alone"):
        await transport.run(["true"])
    os.chmod(folder, 0o700)


# Masters of the person -------------------------------------------------------------------------------------------


@pytest.fixture
def own_master(config, short_tmp):
    """``own_master(host)``: a configuration, and a function that asks the master that the person has open."""
    ended = contextlib.ExitStack()

    def make(host):
        path = tempfile.mktemp(prefix="c", dir=short_tmp)
        file = config(host, f"ControlPath {path}")

        def ask(command):
            argv = ["ssh", "-F", str(file), "-O", command, host.name]
            return subprocess.run(argv, capture_output=True, check=False).returncode == 0

        subprocess.run(["ssh", "-F", str(file), "-M", "-N", "-f", host.name], check=True, stderr=subprocess.DEVNULL)
        ended.callback(ask, "exit")
        return file, ask

    yield make
    ended.close()


async def test_a_master_of_the_person_is_used_and_left_alone(login_node, folder, log_in, own_master):
    file, ask = own_master(login_node)
    transport = await log_in(file, login_node.name, Person())
    assert (await transport.run(["echo", "x"])).stdout == b"x\n"
    assert masters(folder) == []
    transport.close()
    await asyncio.sleep(0.5)
    assert ask("check")


@pytest.mark.parametrize("sessions", [1, 2])
async def test_a_master_of_the_person_with_few_sessions(ssh_host, log_in, own_master, sessions):
    host = ssh_host(name=f"meagre{sessions}", options={"MaxSessions": sessions})
    file, ask = own_master(host)
    transport = await log_in(file, host.name, Person())
    await transport._link.connect()
    done = await asyncio.gather(*(transport.run(["echo", "x"]) for _ in range(6)))
    assert done == [Completed(0, b"x\n", b"")] * 6
    await transport._link.ask()
    transport.close()
    await asyncio.sleep(0.2)
    assert ask("check")


async def test_a_master_of_the_person_whose_host_is_gone_is_found_out(ssh_host, log_in, own_master):
    host = ssh_host(name="dark")
    file, ask = own_master(host)
    told = []
    transport = await log_in(file, host.name, Person(), told=told.append, ping=1.0, deadline=3.0)
    await transport.run(["true"])
    host.drop()
    begin = time.monotonic()
    while not told:
        await asyncio.sleep(0.05)
        assert time.monotonic() - begin < 15
    host.restore()
    assert (await transport.run(["echo", "back"])).stdout == b"back\n"
    assert ask("check")


async def test_a_person_who_ends_the_master_loses_nothing(login_node, folder, log_in, own_master):
    file, ask = own_master(login_node)
    transport = await log_in(file, login_node.name, Person())
    await transport.run(["true"])
    assert ask("exit")

    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(TransportError):
                await transport.run(["true"])
                break
    assert len(masters(folder)) == 1


# What the person is asked ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asking(ssh_host, new_user):
    """A host that takes a password."""
    user = new_user(password="right horse")
    options = {"PasswordAuthentication": "yes", "UsePAM": "no", "MaxAuthTries": 6}
    return ssh_host(name="asking", users=[user], options=options), user


def by_password(config, host, *lines):
    return config(host, "PubkeyAuthentication no", *lines)


async def test_passwords_are_asked_again_as_ssh_does(asking, config, log_in):
    host, user = asking
    person = Person("wrong", "", "right horse")
    transport = await log_in(by_password(config, host), host.name, person)
    assert (await transport.run(["id", "-un"])).stdout.decode().strip() == user
    assert [prompt.kind for prompt in person.asked] == ["password"] * 3
    assert [prompt.questions[0].text for prompt in person.asked] == [f"Password for {user}@{host.name}"] * 3
    assert ["Try again" in prompt.instruction for prompt in person.asked] == [False, True, True]
    assert person.asked[0].host == f"{host.name} ({user}@{host.address})"
    assert not person.asked[0].questions[0].echo


async def test_an_ssh_older_than_ssh_askpass_require_asks_too(asking, config, log_in, tmp_path, monkeypatch):
    """Before 8.4 a display, and no terminal, is what makes it ask a program: no difference to the person."""
    environment = Login._environment

    def older(self, program):
        return {name: value for name, value in environment(self, program).items() if name != "SSH_ASKPASS_REQUIRE"}

    monkeypatch.setattr(Login, "_environment", older)
    monkeypatch.delenv("DISPLAY", raising=False)
    host, user = asking
    known = ("StrictHostKeyChecking ask", f"UserKnownHostsFile {tmp_path / 'none'}")
    person = Person("yes", "right horse")
    transport = await log_in(by_password(config, host, *known), host.name, person)
    assert (await transport.run(["id", "-un"])).stdout.decode().strip() == user
    assert [prompt.kind for prompt in person.asked] == ["host-key", "password"]


async def test_wrong_passwords_end(asking, config, log_in, folder):
    host, user = asking
    transport = await log_in(by_password(config, host), host.name, Person("a", "b", "c"))
    with pytest.raises(LoginFailed, match=f"did not let {user} in") as caught:
        await transport.run(["true"])
    assert "your name there" in caught.value.hint
    assert not masters(folder)


async def test_who_declines_is_not_asked_again(asking, config, log_in, folder):
    host, _ = asking
    person = Person(None)
    transport = await log_in(by_password(config, host), host.name, person)
    with pytest.raises(LoginDeclined):
        await transport.run(["true"])
    assert len(person.asked) == 1
    await gone(folder)


async def test_a_log_in_that_is_ended_takes_its_question_back(asking, config, log_in, folder):
    host, _ = asking
    asked, cancelled = asyncio.Event(), asyncio.Event()

    class Slow:
        async def ask(self, prompt):
            asked.set()
            try:
                await asyncio.sleep(1000)
            finally:
                cancelled.set()

    transport = await log_in(by_password(config, host), host.name, Slow())
    task = asyncio.create_task(transport.run(["true"]))
    async with asyncio.timeout(20):
        await asked.wait()
        transport.close()
        with pytest.raises(LinkLost):
            await task
        await cancelled.wait()
    await gone(folder)


async def test_a_passphrase(ssh_host, config, log_in, tmp_path):
    host = ssh_host(name="locked")
    key = new_key(tmp_path / "locked", passphrase="open sesame")
    host.authorize(host.user, key.with_suffix(".pub").read_text())
    person = Person("no", "open sesame")
    file = tmp_path / "config"
    file.write_text(host.client_entry().replace(str(host.key), str(key)))
    transport = await log_in(file, host.name, person)
    assert (await transport.run(["echo", "x"])).stdout == b"x\n"
    assert [(prompt.kind, prompt.questions[0].text) for prompt in person.asked] == [
        ("passphrase", f"Passphrase for {key}")
    ] * 2
    assert ["wrong" in prompt.instruction for prompt in person.asked] == [False, True]


@pytest.mark.parametrize("answer", ["yes", "the fingerprint", "no", None, "y"])
async def test_an_unknown_key_needs_a_yes(ssh_host, login_node, log_in, tmp_path, answer):
    known = tmp_path / "known"
    known.touch()
    file = tmp_path / "config"
    entry = login_node.client_entry().replace(str(login_node.known_hosts), str(known))
    file.write_text(entry.replace("StrictHostKeyChecking yes", "StrictHostKeyChecking no"))
    public = (login_node.etc / "ssh_host_ed25519_key.pub").read_text()
    shown = subprocess.run(["ssh-keygen", "-lf", "-"], input=public, capture_output=True, text=True, check=True)
    fingerprint = shown.stdout.split()[1]
    person = Person(fingerprint if answer == "the fingerprint" else answer)
    transport = await log_in(file, login_node.name, person)
    if answer in ("yes", "the fingerprint"):
        await transport.run(["true"])
        assert public.split()[1] in known.read_text()
    else:
        with pytest.raises(HostKeyUnknown) as caught:
            await transport.run(["true"])
        assert caught.value.details["fingerprint"] == fingerprint
        assert known.read_text() == ""
    (prompt,) = person.asked
    assert prompt.kind == "host-key"
    assert prompt.questions[0].echo
    assert f"ED25519 key fingerprint is {fingerprint}" in prompt.instruction


async def test_a_changed_key_is_refused_with_the_command_that_mends_it(ssh_host, log_in):
    host = ssh_host(name="changed")
    host.new_host_key()
    file = host.ssh_config
    file.write_text(file.read_text().replace("StrictHostKeyChecking yes", "StrictHostKeyChecking no"))
    transport = await log_in(file, host.name, Person())
    with pytest.raises(HostKeyChanged) as caught:
        await transport.run(["true"])
    error = caught.value
    assert error.details["command"] == f"ssh-keygen -f {host.known_hosts} -R {host.address}"
    assert error.details["command"] in error.hint
    assert error.details["known_fingerprint"].startswith("SHA256:")
    assert error.details["known_fingerprint"] != error.details["fingerprint"]
    subprocess.run(error.details["command"].split(), check=True, capture_output=True)


@pytest.mark.parametrize(
    ("lines", "words", "kind"),
    [
        ("HostName no-such-host.invalid", "not known", LinkLost),
        ("Port 1", "connection refused", LinkLost),
        ("Ciphers aes128-cbc", "negotiate|cipher", TransportError),
    ],
)
async def test_what_is_wrong_is_told_at_once(login_node, log_in, tmp_path, lines, words, kind):
    file = tmp_path / "config"
    file.write_text(f"Host {login_node.name}\n    {lines}\n{login_node.client_entry()}")
    transport = await log_in(file, login_node.name, Person())
    begin = time.monotonic()
    with pytest.raises(kind, match=words) as caught:
        await transport.run(["true"])
    assert time.monotonic() - begin < 15
    assert caught.value.hint


async def test_no_ssh_is_told(login_node, log_in, monkeypatch, tmp_path):
    transport = await log_in(login_node.ssh_config, login_node.name, Person())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TransportError, match="no `ssh`") as caught:
        await transport.run(["true"])
    assert "paramiko" in caught.value.hint


# Secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.slurm
async def test_a_secret_is_in_no_command_line_environment_or_log(new_ssh_site, folder, log_in, caplog):
    caplog.set_level("DEBUG")
    site = new_ssh_site(way_in="password+code", nodes=1)
    over, seen = threading.Event(), set()

    def watch():
        while not over.is_set():
            for entry in os.listdir("/proc"):
                if entry.isdigit():
                    for name in ("cmdline", "environ"):
                        with contextlib.suppress(OSError):
                            seen.add(Path(f"/proc/{entry}/{name}").read_bytes())

    watching = threading.Thread(target=watch)
    watching.start()
    secrets = []

    def code():
        secrets.append(site.codes.next())
        return secrets[-1]

    person = Person(site.password, code)
    try:
        transport = await log_in(site.ssh_config, "login", person)
        assert (await transport.run(["hostname"])).stdout == b"login1\n"
    finally:
        over.set()
        watching.join()
    assert [prompt.host.partition(" ")[0] for prompt in person.asked] == ["gateway", "gateway"]
    assert any(b"SSH_ASKPASS=" in text for text in seen), "OpenSSH was seen"
    written = [caplog.text.encode(), *(path.read_bytes() for path in Path(folder).iterdir() if path.is_file())]
    for secret in (site.password, *secrets):
        assert not [text for text in (*seen, *written) if secret.encode() in text]


async def test_nobody_else_is_answered(login_node, config, folder, asking, log_in):
    """The socket for questions is private, and what comes by it is asked of the person, whoever sends it."""
    host, _ = asking
    modes = []

    class Looking(Person):
        async def ask(self, prompt):
            for path in Path(folder).iterdir():
                modes.append((path.name, path.stat().st_mode & 0o077))
            return await super().ask(prompt)

    transport = await log_in(by_password(config, host), host.name, Looking("right horse"))
    await transport.run(["true"])
    assert modes
    assert {mode for _, mode in modes} == {0}


# Streams ---------------------------------------------------------------------------------------------------------


async def test_a_stream_says_why_it_cannot_be(ssh_host, log_in):
    for name, options, code in (("open", {}, 2), ("shut", {"AllowTcpForwarding": "no"}, 1)):
        host = ssh_host(name=name, options=options)
        transport = await log_in(host.ssh_config, host.name, Person())
        await transport.run(["true"])
        with pytest.raises(paramiko.ChannelException) as caught:
            await asyncio.to_thread(transport._link.dial, "127.0.0.1", 1, 10)
        assert caught.value.code == code
        assert (await transport.run(["echo", "x"])).stdout == b"x\n"


@pytest.mark.parametrize("sessions", [1, 3])
async def test_how_many_sessions_there_can_be_is_found_out(ssh_host, log_in, sessions):
    host = ssh_host(name=f"counted{sessions}", options={"MaxSessions": sessions})
    transport = await log_in(host.ssh_config, host.name, Person())
    await transport._link.connect()
    assert await count_sessions(transport._link) == sessions
    assert await has_sftp(transport._link)
    assert (await transport.run(["echo", "x"])).stdout == b"x\n"


# Attacks and odd ways --------------------------------------------------------------------------------------------


def without(text, *words):
    return "".join(line + "\n" for line in text.splitlines() if line.split()[:1] not in [[word] for word in words])


@pytest.mark.slurm
async def test_unknown_keys_on_the_way_need_a_yes_each_whatever_the_configuration_says(ssh_site, log_in, tmp_path):
    known, file = tmp_path / "known", tmp_path / "config"
    rest = without(ssh_site.ssh_config.read_text(), "UserKnownHostsFile", "StrictHostKeyChecking")
    file.write_text(f"{rest}    UserKnownHostsFile {known}\n    StrictHostKeyChecking no\n")
    person = Person("yes", ssh_site.codes.next, "no")
    transport = await log_in(file, "login", person)
    with pytest.raises(HostKeyUnknown) as caught:
        await transport.run(["true"])
    assert caught.value.details["host"] == "login"
    told = [(prompt.kind, prompt.host.partition(" ")[0]) for prompt in person.asked]
    assert told == [("host-key", "gateway"), ("keyboard-interactive", "gateway"), ("host-key", "login")]
    assert len(known.read_text().splitlines()) == 1


@pytest.mark.slurm
async def test_a_changed_key_on_the_way_is_told_of_that_host(ssh_site, log_in, tmp_path):
    known, file = tmp_path / "known", tmp_path / "config"
    other = (ssh_site.logins["login2"].etc / "ssh_host_ed25519_key.pub").read_text().split()[:2]
    known.write_text(f"{ssh_site.gateway.address} {' '.join(other)}\n")
    rest = without(ssh_site.ssh_config.read_text(), "UserKnownHostsFile", "StrictHostKeyChecking")
    file.write_text(f"{rest}    UserKnownHostsFile {known}\n    StrictHostKeyChecking no\n")
    transport = await log_in(file, "login", Person())
    with pytest.raises(HostKeyChanged) as caught:
        await transport.run(["true"])
    assert caught.value.details["host"] == "gateway"
    assert caught.value.details["command"] == f"ssh-keygen -f {known} -R {ssh_site.gateway.address}"


@pytest.mark.slurm
async def test_a_push(new_ssh_site, log_in):
    site = new_ssh_site(way_in="key+push", nodes=1)
    site.codes.press_yes()
    person = Person("1")
    transport = await log_in(site.ssh_config, "login", person)
    assert (await transport.run(["hostname"])).stdout == b"login1\n"
    assert "Push to XXX-XXX-0042" in person.asked[0].instruction + person.asked[0].questions[0].text


async def test_a_socket_of_another_user_is_no_master(login_node, config, log_in, folder, short_tmp, bob):
    path = short_tmp / "theirs.sock"
    script = (
        "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); time.sleep(100)"
    )
    short_tmp.chmod(0o777)
    with subprocess.Popen(["/usr/bin/python3", "-c", script, str(path)], user=bob) as process:
        try:
            while not path.exists():
                await asyncio.sleep(0.05)
            path.chmod(0o777)
            transport = await log_in(config(login_node, f"ControlPath {path}"), login_node.name, Person())
            assert (await transport.run(["echo", "x"])).stdout == b"x\n"
            assert len(masters(folder)) == 1
        finally:
            process.kill()
            short_tmp.chmod(0o711)


HELLO = b"\0\0\0\x08\0\0\0\1\0\0\0\4"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\0\0\0\1x",
        b"\xff" * 64,
        b"\0\0\0\x08\0\0\0\1\0\0\0\3",
        b"HTTP/1.1 400 \r\n\r\n",
        HELLO + b"\0\0\0\0",
        HELLO + b"\0\0\0\x08\x80\0\0\5\0\0\0\1",
    ],
)
async def test_what_is_no_master_is_left_alone(login_node, config, log_in, folder, short_tmp, said):
    path = short_tmp / "odd.sock"
    with contextlib.suppress(FileNotFoundError):
        path.unlink()

    async def serve(reader, writer):
        writer.write(said)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await writer.drain()
            if said.startswith(HELLO):
                await reader.readexactly(24)  # two messages
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        transport = await log_in(config(login_node, f"ControlPath {path}"), login_node.name, Person())
        assert (await transport.run(["echo", "x"])).stdout == b"x\n"
    assert len(masters(folder)) == 1


async def test_a_master_that_hangs_is_replaced(login_node, log_in, folder, monkeypatch):
    monkeypatch.setattr(openssh, "_ANSWER", 1.0)
    one = await log_in(login_node.ssh_config, login_node.name, Person(), ping=0.5, deadline=3.0)
    await one.run(["true"])
    (master,) = masters(folder)
    os.kill(master, signal.SIGSTOP)
    async with asyncio.timeout(20):
        while masters(folder) in ([master], []):
            await asyncio.sleep(0.05)
    assert (await one.run(["echo", "x"])).stdout == b"x\n"


async def test_a_control_socket_that_is_removed_costs_a_log_in_and_no_more(login_node, log_in, folder):
    one = await log_in(login_node.ssh_config, login_node.name, Person(), ping=0.5)
    await one.run(["true"])
    (path,) = (entry for entry in Path(folder).iterdir() if entry.is_socket())
    path.unlink()
    async with asyncio.timeout(20):
        while not any(entry.is_socket() for entry in Path(folder).iterdir()):
            await asyncio.sleep(0.05)
    assert (await one.run(["echo", "x"])).stdout == b"x\n"


async def test_the_far_side_gets_no_agent_and_no_display(login_node, log_in, monkeypatch, config):
    monkeypatch.setenv("DISPLAY", ":7")
    file = config(
        login_node, "ForwardAgent yes", "ForwardX11 yes", "LocalForward 8765 127.0.0.1:22", "RequestTTY force"
    )
    transport = await log_in(file, login_node.name, Person())
    done = await transport.run(["sh", "-c", "echo ${SSH_AUTH_SOCK-none} ${DISPLAY-none} ${SSH_TTY-none}"])
    assert done.stdout == b"none none none\n"
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", 8765)


@pytest.mark.parametrize("answer", ["with 'quotes' \" and $(id) `id` \\ é", "x" * 500, "pass\udcff"])
async def test_odd_answers(asking, config, log_in, answer, caplog):
    caplog.set_level("DEBUG")
    host, _ = asking
    transport = await log_in(by_password(config, host), host.name, Person(answer, "right horse"))
    if answer.isprintable():
        assert (await transport.run(["echo", "x"])).stdout == b"x\n"
    else:
        with pytest.raises(LoginFailed, match="UTF-8"):
            await transport.run(["true"])
    assert answer not in caplog.text
