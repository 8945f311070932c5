"""Questions of OpenSSH, and their delivery to the user."""

import asyncio
import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from ssh_hosts.openssh import Person, by_password, gone, masters
from ssh_hosts.sshd import new_key

from jupyter_slurm.errors import HostKeyChanged, HostKeyUnknown, LoginDeclined, LoginFailed, TransportError
from jupyter_slurm.transport.ssh.protocols import LinkLost
from jupyter_slurm.transport.ssh.via_openssh.login import OpenSshLogin

pytestmark = pytest.mark.root


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
    """Check OpenSSH before 8.4, which uses askpass only with a display and without a terminal."""
    environment = OpenSshLogin._environment

    def older(self, program):
        return {name: value for name, value in environment(self, program).items() if name != "SSH_ASKPASS_REQUIRE"}

    monkeypatch.setattr(OpenSshLogin, "_environment", older)
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
    with pytest.raises(LoginFailed, match=f"as {user} failed") as caught:
        await transport.run(["true"])
    assert "your user name on this host" in caught.value.hint
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
    async with asyncio.timeout(60):
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


@pytest.mark.parametrize("line", ["StrictHostKeyChecking yes", "BatchMode yes"])
async def test_where_nobody_may_be_asked_a_command_adds_the_key(login_node, log_in, tmp_path, line):
    known, file = tmp_path / "known", tmp_path / "config"
    entry = login_node.client_entry().replace(str(login_node.known_hosts), str(known))
    file.write_text(entry.replace("StrictHostKeyChecking yes", line))
    with pytest.raises(HostKeyUnknown) as caught:
        await (await log_in(file, login_node.name, Person())).run(["true"])
    assert f"Your ssh configuration has `{line}` for {login_node.name}" in caught.value.hint
    command = caught.value.hint.partition("add the key: ")[2].removeprefix("ssh ")
    asks = tmp_path / "asks"
    asks.write_text("#!/bin/sh\necho yes\n")
    asks.chmod(0o755)
    env = {**os.environ, "SSH_ASKPASS": str(asks), "SSH_ASKPASS_REQUIRE": "force"}
    subprocess.run(["ssh", *shlex.split(command)], env=env, check=True, capture_output=True)
    assert (await (await log_in(file, login_node.name, Person())).run(["echo", "x"])).stdout == b"x\n"


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
    assert f"of another type ({error.details['key_type']})" not in error.message
    subprocess.run(error.details["command"].split(), check=True, capture_output=True)


async def test_a_key_of_a_second_login_node_is_added_beside_the_first(ssh_host, log_in, tmp_path):
    host = ssh_host(name="twofold")
    first = host.known_hosts.read_text()
    host.new_host_key()
    transport = await log_in(host.ssh_config, host.name, Person())
    with pytest.raises(HostKeyChanged) as caught:
        await transport.run(["true"])
    assert "several login nodes share this name" in caught.value.hint
    assert caught.value.details["add_command"] in caught.value.hint
    asks = tmp_path / "asks"
    asks.write_text("#!/bin/sh\necho yes\n")
    asks.chmod(0o755)
    env = {**os.environ, "SSH_ASKPASS": str(asks), "SSH_ASKPASS_REQUIRE": "force"}
    subprocess.run(["sh", "-c", caught.value.details["add_command"]], env=env, check=True, capture_output=True)
    assert host.known_hosts.read_text().startswith(first.rstrip("\n"))
    assert len(host.known_hosts.read_text().splitlines()) == len(first.splitlines()) + 1
    transport = await log_in(host.ssh_config, host.name, Person())
    assert (await transport.run(["echo", "x"])).stdout == b"x\n"


async def test_after_a_late_yes_to_a_key_it_connects_once_more(ssh_host, log_in, tmp_path):
    host = ssh_host(name="hasty", options={"LoginGraceTime": 2})
    file, known = tmp_path / "config", tmp_path / "known"
    entry = host.client_entry().replace(str(host.known_hosts), str(known))
    file.write_text(entry.replace("StrictHostKeyChecking yes", "StrictHostKeyChecking ask"))

    def connections():
        return list(host.processes().values()).count("sshd")

    before = connections()

    class Late(Person):
        async def ask(self, prompt):
            while connections() > before:
                await asyncio.sleep(0.05)
            return await super().ask(prompt)

    person = Late("yes")
    transport = await log_in(file, host.name, person)
    assert (await transport.run(["echo", "x"])).stdout == b"x\n"
    assert [prompt.kind for prompt in person.asked] == ["host-key"]


@pytest.mark.parametrize(
    ("lines", "words", "kind"),
    [
        ("HostName no-such-host.invalid", "is unknown", LinkLost),
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
    assert time.monotonic() - begin < 40
    assert caught.value.hint


async def test_no_ssh_is_told(login_node, log_in, monkeypatch, tmp_path):
    transport = await log_in(login_node.ssh_config, login_node.name, Person())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TransportError, match="no `ssh`") as caught:
        await transport.run(["true"])
    assert "paramiko" in caught.value.hint


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
    assert caught.value.details["key_type"] == "ssh-ed25519"
    assert "of another type" not in caught.value.message  # both are


@pytest.mark.slurm
async def test_a_push(new_ssh_site, log_in):
    site = new_ssh_site(way_in="key+push", nodes=1)
    site.codes.press_yes()
    person = Person("1")
    transport = await log_in(site.ssh_config, "login", person)
    assert (await transport.run(["hostname"])).stdout == b"login1\n"
    assert "Push to XXX-XXX-0042" in person.asked[0].instruction + person.asked[0].questions[0].text


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


async def test_what_a_host_says_when_it_lets_nobody_in_is_told(ssh_host, log_in, tmp_path):
    pam = tmp_path / "pam"
    pam.write_text("account required pam_nologin.so file=/etc/ssh/nologin\n")
    files = {"nologin": "Down until Monday\n"}
    host = ssh_host(name="down", options={"UsePAM": "yes"}, mounts={"/etc/pam.d/sshd": pam}, files=files)
    with pytest.raises(LoginFailed, match="ended the login: Down until Monday") as caught:
        await (await log_in(host.ssh_config, host.name, Person())).run(["true"])
    assert "VPN" not in caught.value.hint


async def test_messages_without_an_end_do_not_fill_the_disk(asking, config, log_in, folder, tmp_path, monkeypatch):
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f"""#!/bin/sh
case " $* " in *" -M "*) head -c 200000000 /dev/zero >&2; sleep 30;; esac
exec {shutil.which("ssh")} "$@"
""")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("jupyter_slurm.transport.ssh.via_openssh.login._MAX_LOG_BYTES", 1 << 20)
    host, _ = asking
    transport = await log_in(by_password(config, host), host.name, Person())
    with pytest.raises(LinkLost, match="sends messages without an end"):
        await transport.run(["true"])
    assert sum(path.stat().st_size for path in Path(folder).rglob("*.log")) < 1 << 20
