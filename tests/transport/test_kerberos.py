"""Kerberos as on a real site: a test KDC, a sshd that accepts its tickets, and OpenSSH as the carrier."""

import asyncio
import os
import shutil
import socket
import subprocess

import pytest

from jupyter_slurm.errors import LoginFailed
from jupyter_slurm.transport.ssh.config.ssh_config import resolve_route
from jupyter_slurm.transport.ssh.transport import SshTransport
from jupyter_slurm.transport.ssh.via_openssh.openssh_link import LoginTarget, OpenSshLink, end_own_masters
from jupyter_slurm.transport.ssh.via_paramiko.diagnosis import LoginLogDiagnosis
from jupyter_slurm.transport.ssh.via_paramiko.login_verification import login_verification
from jupyter_slurm.transport.ssh.via_paramiko.paramiko_link import ParamikoLink

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.asyncio]

_REALM = "TEST.EXAMPLE"
_KRB5 = """[libdefaults]
    default_realm = {realm}
    default_keytab_name = FILE:/etc/ssh/krb5.keytab
    dns_lookup_realm = false
    dns_lookup_kdc = false
    dns_canonicalize_hostname = false
    rdns = false
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
"""
_KDC = """[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/acl
    }}
[logging]
    kdc = FILE:{folder}/kdc.log
"""


class Kdc:
    """A key distribution center on this machine."""

    def __init__(self, folder):
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        values = {"realm": _REALM, "port": port, "folder": folder}
        (folder / "krb5.conf").write_text(_KRB5.format(**values))
        (folder / "kdc.conf").write_text(_KDC.format(**values))
        self.env = {
            **os.environ,
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
            "KRB5_CONFIG": str(folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder / 'ticket'}",
        }
        self.run("kdb5_util", "create", "-s", "-P", "master")
        self._process = subprocess.Popen(
            ["krb5kdc", "-n"], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def run(self, *argv, **options):
        return subprocess.run(argv, env=self.env, check=True, capture_output=True, **options)

    def admin(self, command):
        self.run("kadmin.local", "-q", command)

    def close(self):
        self._process.terminate()
        self._process.wait()


@pytest.fixture
def kdc(tmp_path, unavailable):
    if shutil.which("krb5kdc", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        unavailable("not installed: krb5-kdc, krb5-admin-server, krb5-user")
    center = Kdc(tmp_path)
    yield center
    center.close()


class Nobody:
    """Prompter without answers: the ticket suffices."""

    async def ask(self, prompt):
        raise AssertionError(f"asked for {prompt}")


async def test_a_ticket_lets_us_in_and_nobody_is_asked(kdc, ssh_host, new_user, short_tmp, monkeypatch, wait_for):
    user = new_user()
    host = ssh_host(
        name="kerberized",
        users=[user],
        options={"GSSAPIAuthentication": "yes", "GSSAPIStrictAcceptorCheck": "no", "PubkeyAuthentication": "no"},
        mounts={"/etc/krb5.conf": kdc.folder / "krb5.conf"},
    )
    kdc.admin(f"addprinc -pw secret {user}")
    kdc.admin(f"addprinc -randkey host/{host.address}")
    kdc.admin(f"ktadd -k {host.etc / 'krb5.keytab'} host/{host.address}")
    for name in ("KRB5_CONFIG", "KRB5CCNAME"):
        monkeypatch.setenv(name, kdc.env[name])
    folder = short_tmp / "kerberos"
    folder.mkdir(mode=0o700)
    config = kdc.folder / "config"
    config.write_text(host.client_entry("GSSAPIAuthentication yes"))
    way = await resolve_route("kerberized", config_file=str(config))
    target, found = LoginTarget("kerberized", (), str(config)), []
    walk = LoginLogDiagnosis(way, found.append)

    def new_link(**options):
        return OpenSshLink(target, way, Nobody(), str(folder), notify=lambda line: None, **options)

    transport = SshTransport(new_link())
    with pytest.raises(LoginFailed) as refused:
        await transport.run(["true"])
    transport.close()
    assert "kinit" in refused.value.hint
    transport = SshTransport(ParamikoLink(way, login_verification(Nobody())))
    with pytest.raises(LoginFailed) as refused:
        await transport.run(["true"])
    transport.close()
    assert 'carrier = "openssh"' in refused.value.hint

    kdc.run("kinit", user, input=b"secret\n")
    transport = SshTransport(new_link(on_line=walk.read_log))
    try:
        assert (await transport.run(["id", "-un"])).stdout.decode().strip() == user
        assert f"{user} is logged in by Kerberos ticket" in found[-1].said
    finally:
        transport.close()
        await asyncio.to_thread(end_own_masters, target, way, str(folder))
