"""Misbehaving servers: the login ends, and no text of theirs moves a cursor."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading

import paramiko
import pytest

from jupyter_slurm.cli.main import main
from jupyter_slurm.errors import LoginFailed
from jupyter_slurm.transport.ssh.auth.login import log_in
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.prompts import Asker
from jupyter_slurm.transport.ssh.protocols import LinkLost
from jupyter_slurm.transport.ssh.via_paramiko.connection import HostChain
from jupyter_slurm.transport.ssh.via_paramiko.login_verification import login_verification
from jupyter_slurm.transport.ssh.via_paramiko.paramiko_link import ParamikoLink


class Person:
    """A user who answers every question."""

    def __init__(self):
        self.asked = []

    async def ask(self, prompt):
        self.asked.append(prompt)
        return ["secret"] * len(prompt.questions)


class Insatiable(paramiko.ServerInterface):
    """A server that always asks for more."""

    methods, questions = "password", ()

    def get_allowed_auths(self, username):
        return self.methods

    def check_auth_password(self, username, password):
        return paramiko.AUTH_PARTIALLY_SUCCESSFUL

    def check_auth_interactive(self, username, submethods):
        return paramiko.InteractiveQuery("", "", *self.questions)

    def check_auth_interactive_response(self, responses):
        return paramiko.AUTH_PARTIALLY_SUCCESSFUL


@pytest.mark.parametrize(
    ("methods", "questions", "most"),
    [("password", (), 17), ("keyboard-interactive", (), 0), ("keyboard-interactive", (("Code", False),), 17)],
)
async def test_a_host_that_never_has_enough_is_left(methods, questions, most):
    class Server(Insatiable):
        pass

    Server.methods, Server.questions = methods, questions
    ours, theirs = socket.socketpair()
    server, client = paramiko.Transport(theirs), paramiko.Transport(ours)
    server.add_server_key(paramiko.ECDSAKey.generate())
    person = Person()
    try:
        server.start_server(threading.Event(), Server())
        await asyncio.to_thread(client.start_client, timeout=30)
        asker = Asker(person, asyncio.get_running_loop())
        host = HostConfig("login", "login.example", user="me")
        with pytest.raises(LoginFailed, match="never has enough") as caught:
            await asyncio.to_thread(log_in, client, host, asker)
    finally:
        client.close()
        server.close()
    assert len(person.asked) == most
    assert "reason" not in caught.value.details, "it must not be tried again by itself"


@pytest.fixture
def listening():
    """Return a factory: ``listening(serve)`` calls ``serve(socket)`` in a thread per connection; gives the port."""
    with contextlib.ExitStack() as stack:

        def listen(serve):
            sock = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def loop():
                with contextlib.suppress(OSError), sock.accept()[0] as connection:
                    serve(connection)

            threading.Thread(target=loop, daemon=True).start()
            stack.callback(sock.shutdown, socket.SHUT_RDWR)
            return sock.getsockname()[1]

        yield listen


async def test_a_link_that_is_closed_while_somebody_is_asked_leaves_no_thread(listening, tmp_path):
    server = []

    def serve(connection):
        server.append(paramiko.Transport(connection))
        server[0].add_server_key(paramiko.ECDSAKey.generate())
        server[0].start_server(threading.Event(), Insatiable())
        server[0].join()

    class Absent(Person):
        gone = False

        async def ask(self, prompt):
            answers = await super().ask(prompt)
            if prompt.kind == "host-key":
                return ["yes"]
            try:
                await asyncio.sleep(600)
            finally:
                self.gone = True
            return answers

    person = Absent()
    known = str(tmp_path / "known_hosts")
    host = HostConfig("odd", "127.0.0.1", listening(serve), "me", user_known_hosts=(known,), global_known_hosts=())
    before = set(threading.enumerate())
    link = ParamikoLink([host], login_verification(person))
    connecting = asyncio.create_task(link.connect())
    async with asyncio.timeout(60):
        while len(person.asked) < 2:
            await asyncio.sleep(0.02)
        link.close()
        with pytest.raises(LinkLost):
            await connecting
        while not person.gone or any(thread not in before for thread in threading.enumerate()):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("banner", ["SSH-\x1b[2J\x1b]0;PWNED\x07-x", "SSH-9.9-x\x1b]0;PWNED\x07\x1b[2J"])
async def test_what_a_server_says_moves_no_cursor(listening, banner):
    host = HostConfig(
        "odd", "127.0.0.1", listening(lambda connection: connection.sendall(f"{banner}\r\n".encode())), "me"
    )
    with pytest.raises(LinkLost, match="cannot be reached") as caught:
        await asyncio.to_thread(HostChain([host], login_verification(Person())).open)
    assert "\x1b" not in caught.value.message


def test_paramiko_shows_its_tracebacks_to_nobody():
    """Check that paramiko's tracebacks stay hidden, even if an application (a Jupyter server) shows all logs."""
    shown = """if True:
        import logging
        logging.basicConfig()
        import jupyter_slurm.transport.ssh.via_paramiko.connection
        logging.getLogger("paramiko.transport").error("a traceback")
        logging.getLogger("other").error("something else")
    """
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert done.stderr == "ERROR:other:something else\n"


def test_an_error_is_shown_without_what_moves_a_cursor(capsys, monkeypatch):
    error = LoginFailed("no\x1b[2J\u202e way\nat all", hint="\x9b2J")
    shown = error._render_traceback_()
    assert shown == ["LoginFailed: no\\x1b[2J\\u202e way\nat all", "\\x9b2J"]

    def fails(args):
        raise error

    monkeypatch.setattr("jupyter_slurm.cli.connect.run", fails)
    assert main(["connect", "far"]) == 1
    assert capsys.readouterr().err == "jupyter slurm connect: no\\x1b[2J\\u202e way\nat all\n\\x9b2J\n"
