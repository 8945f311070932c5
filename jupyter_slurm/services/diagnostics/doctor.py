"""Examination of a cluster, step by step: working parts, failures, and remedies."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from jupyter_slurm.domain.findings import Finding
from jupyter_slurm.domain.queries.cluster import Partition, expand_hosts, parse_partitions, partitions_argv
from jupyter_slurm.errors import CommandMissing, SlurmError, TransportError
from jupyter_slurm.services.diagnostics.job_and_node_checks import job_folder, node_access, ports, python
from jupyter_slurm.services.diagnostics.probe_job import node_findings, run_probe
from jupyter_slurm.services.slurm.client import SlurmClient, decode_output
from jupyter_slurm.services.slurm.location import ClusterLocation, inspect_location
from jupyter_slurm.sites.profile import Profile
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.ssh.link.persistent import PersistentLink
from jupyter_slurm.transport.ssh.prompts import Prompter
from jupyter_slurm.transport.ssh.shell.login_shell_check import (
    check_login_shell,
    check_prelude,
    count_sessions,
    has_sftp,
    only_in_terminals,
)
from jupyter_slurm.transport.ssh.shell.prelude import no_command_hint

__all__ = ["ClusterCheck"]

_SLOW_COMMAND_S: Final = 3.0  # seconds that a command may take in the login shell; each connection runs a few
_MIN_SESSIONS: Final = 4  # sessions, and so many concurrent commands
_COMMAND_TIMEOUT_S: Final = 60.0
_MAX_LISTED_NAMES: Final = 12
# Usual locations of a Slurm that is not a system package.
_FIND_SLURM_SCRIPT: Final = (
    "for d in /usr/local/bin /usr/local/slurm*/bin /opt/slurm*/bin /opt/slurm/*/bin /opt/*/slurm*/bin "
    '/cm/shared/apps/slurm/*/bin /usr/slurm*/bin; do [ ! -x "$d/sbatch" ] || printf "%s\\n" "$d"; done'
)
# Search for the command in a login shell; csh accepts no -c after -l.
_LOGIN_SHELL_SCRIPT: Final = (
    'case "$SHELL" in *csh) exec "$SHELL" -c "if (-r /etc/csh.login) source /etc/csh.login; if (-r ~/.login) source '
    '~/.login; which sbatch" ;; *) exec "$SHELL" -l -c "command -v sbatch" ;; esac >/dev/null 2>&1 </dev/null'
)


class ClusterCheck:
    """Checks that follow a login.

    Parameters
    ----------
    profile : Profile
        Describes the connection.
    link, transport
        The login, and the transport over it.
    prompter : Prompter
        Prompts the user.
    report : callable
        Receives each finding as soon as it is known.
    has_job : bool
        Whether a probe job follows, which sees more.
    """

    def __init__(
        self,
        profile: Profile,
        link: PersistentLink,
        transport: Transport,
        prompter: Prompter,
        report: Callable[[Finding], None],
        *,
        has_job: bool = False,
    ) -> None:
        self._profile, self._link, self._prompter, self._report = profile, link, prompter, report
        self._transport, self._has_job = transport, has_job
        self._nodes: list[str] = []

    async def arrive(self) -> None:
        """Check the server and its shell, before other sessions use this login."""
        # Others may use a login of OpenSSH, and take some of its sessions.
        shared = self._profile.carrier == "openssh"
        steps = (("sessions", self._sessions), ("shell", self._shell), ("SFTP", self._sftp))
        for about, step in steps[shared:]:
            if not await self._step(about, step):
                return

    async def run_checks(self) -> bool:
        """Run the checks in order; skip those that depend on a failed one. Return False if no probe job is possible."""
        try:
            where = await inspect_location(self._transport, self._profile, 0)
        except SlurmError as error:
            self._report(Finding("failed", "shell", error.message, error.hint))
            return False
        client = SlurmClient(self._transport, where, _COMMAND_TIMEOUT_S)
        answers = await self._step("Slurm", lambda: self._slurm(client)) and await self._step(
            "controller", lambda: self._controller(client, where)
        )
        folder = await self._step("job folder", lambda: self._folder(where))
        if answers:
            await self._step("node access", lambda: self._access(client, where))
        self._report(ports(*self._profile.ports))
        await self._step("Python", lambda: self._python(where))
        return answers and folder

    async def check_by_job(self, options: Sequence[str]) -> None:
        """Check a node with a short probe job."""
        await self._step("test job", lambda: self._check_node(options))

    async def _step(self, check: str, step: Callable[[], Awaitable[None]]) -> bool:
        try:
            await step()
        except SlurmError as error:
            self._report(Finding("failed", check, error.message, error.hint))
        except OSError as error:  # of a file on the remote host
            self._report(Finding("failed", check, str(error), "Check its permissions and the free space."))
        else:
            return True
        return False

    def _ok(self, check: str, message: str) -> None:
        self._report(Finding("ok", check, message))

    def _warn(self, check: str, message: str, todo: str) -> None:
        self._report(Finding("warning", check, message, todo))

    # -- server and shell

    async def _shell(self) -> None:
        seen = await check_login_shell(self._link, self._profile.patience)
        if not seen.answered:
            said = f": {seen.noise}" if seen.noise else ""
            self._warn(
                "shell",
                f"the login shell ran no command in {seen.seconds:.0f} s{said}",
                no_command_hint(seen.noise),
            )
            return
        self._ok("shell", f"{seen.shell} runs a command after {seen.seconds:.1f} s")
        if seen.seconds > _SLOW_COMMAND_S:
            self._warn(
                "shell",
                "its start-up files are slow; every new session waits for them",
                only_in_terminals(seen.shell, "slow commands"),
            )
        if seen.noise:
            self._warn(
                "shell",
                "start-up files print, also for commands. jupyter_slurm ignores this, but scp and rsync "
                f"fail: {seen.noise[:200]}",
                only_in_terminals(seen.shell, "commands that print"),
            )

        if self._profile.prelude:
            await self._prelude()

    async def _prelude(self) -> None:
        profile = self._profile
        end = await check_prelude(self._link, profile.prelude, profile.login_shell, profile.patience)
        if end.exit_code:
            self._warn(
                "prelude",
                str(end),
                "`prelude` under [shell] in the profile is text for /bin/sh. Run `sh` on the login node "
                "and type the text to see the error. A module may need another one before it, `module "
                "use DIR`, or `login_shell = true`.",
            )
        else:
            self._ok("prelude", f"it prints: {end.output[:200]}" if end.output else "done")

    async def _sessions(self) -> None:
        count = await count_sessions(self._link)
        if not count:
            raise TransportError(
                "The server allows no session, so no command can run.",
                hint="Ask the administrators: MaxSessions in sshd_config is 0, or your account may only forward ports.",
            )
        if count == 1:
            self._warn(
                "sessions",
                "the server allows one session at a time: one command after the other",
                "Everything works, but slowly. Ask the administrators for MaxSessions 10, the default of OpenSSH.",
            )
        else:
            self._ok("sessions", f"{count} at once" if count < _MIN_SESSIONS else f"{_MIN_SESSIONS} and more at once")

    async def _sftp(self) -> None:
        self._ok("SFTP", "there" if await has_sftp(self._link) else "not available; files are sent through the shell")

    # -- Slurm

    async def _slurm(self, client: SlurmClient) -> None:
        try:
            said = decode_output(await client.query(["sbatch", "--version"])).strip()
        except CommandMissing as error:
            raise CommandMissing("sbatch is not on the PATH of the login node.", hint=await self._remedy()) from error
        version = re.search(r"^slurm\S* \d.*$", said, re.MULTILINE)  # a site wrapper may print more
        self._ok("Slurm", version[0] if version else said)

    async def _remedy(self) -> str:
        """Find a setting that puts Slurm on the PATH."""
        if not self._profile.login_shell:
            done = await self._transport.run(["/bin/sh", "-c", _LOGIN_SHELL_SCRIPT])
            if done.exit_code == 0:
                return "A login shell has it: write `login_shell = true` under [shell] in the profile."
        done = await self._transport.run(["/bin/sh", "-c", _FIND_SLURM_SCRIPT])
        for place in decode_output(done.stdout).splitlines()[:1]:
            return f"It is in {place}: write `prelude = 'PATH={place}:$PATH'` under [shell] in the profile."
        return (
            "Check that the host is a login node. If Slurm is a module, write `prelude = 'module "
            "load slurm'` under [shell] in the profile, and `login_shell = true` if only terminals "
            "know that module."
        )

    async def _controller(self, client: SlurmClient, location: ClusterLocation) -> None:
        configuration = await client.configuration()
        self._ok("controller", f"answers; the cluster is named {configuration.get('ClusterName') or '?'}")
        nodes = await client.nodes()
        self._nodes = [node.hostname or node.name for node in nodes]
        up = sum(node.is_up for node in nodes)
        if not up:
            self._warn("nodes", f"none of {len(nodes)} can start jobs now", "`%sinfo -R` shows why they are down.")
        else:
            self._ok("nodes", f"{up} of {len(nodes)} can start jobs")
        accounts: set[str] | None = None
        if configuration.get("AccountingStorageType", "") in ("", "accounting_storage/none"):
            self._ok("accounts", "the cluster keeps none")
        else:
            accounts = await self._accounts(client, location, configuration.get("AccountingStorageEnforce", ""))
        await self._step("partitions", lambda: self._partitions(client, accounts))

    async def _accounts(self, client: SlurmClient, location: ClusterLocation, enforced: str) -> set[str] | None:
        argv = [
            "sacctmgr",
            "--noheader",
            "--parsable2",
            "show",
            "associations",
            f"user={location.user}",
            "format=account",
        ]
        try:
            said = decode_output(await client.query(argv))
        except SlurmError as error:
            self._warn("accounts", f"they cannot be read: {error.message}", error.hint)
            return None
        accounts = {line.strip() for line in said.splitlines() if line.strip()}
        if accounts:
            self._ok("accounts", _names(sorted(accounts)))
        elif "associations" in enforced:
            todo = "Ask the site for an account. Without one, no job is accepted."
            self._report(Finding("failed", "accounts", f"{location.user} has none", todo))
        else:
            self._ok("accounts", f"{location.user} has none, and needs none")
        return accounts or None

    async def _partitions(self, client: SlurmClient, accounts: set[str] | None) -> None:
        groups = set(decode_output((await self._transport.run(["id", "-Gn"])).stdout).split())
        partitions = await client.read(partitions_argv(), parse_partitions)
        mine = [each for each in partitions if _may_use(each, accounts, groups)]
        if not mine:
            todo = "Ask the site which partition is for you."
            said = f"none of {len(partitions)} accepts your jobs now"
            self._report(Finding("failed", "partitions", said, todo))
            return
        self._ok("partitions", _names([f"{each.name} (default)" if each.is_default else each.name for each in mine]))
        if not any(each.is_default for each in mine):
            self._warn("partitions", "none of them is the default", "Name one: `%%sbatch -p NAME`.")

    # -- needs of jobs

    async def _folder(self, location: ClusterLocation) -> None:
        self._report(await job_folder(self._transport, location, self._nodes))

    async def _python(self, location: ClusterLocation) -> None:
        self._report(await python(self._transport, location, self._profile, self._nodes, is_asked_there=self._has_job))

    async def _access(self, client: SlurmClient, location: ClusterLocation) -> None:
        running = [job for job in await client.queue() if job.state.is_running and job.nodes]
        if running:
            job = running[0]
            await self._reach(client, location, expand_hosts(job.nodes)[0], str(job.raw_id or job.id.job))
        elif not self._has_job:
            self._ok("node access", "not checked, because none of your jobs is running; `--job` starts a short one")

    async def _reach(self, client: SlurmClient, location: ClusterLocation, node: str, job: str) -> None:
        self._report(await node_access(self._transport, location, self._profile, client, self._prompter, node, job))

    async def _check_node(self, options: Sequence[str]) -> None:
        where = await inspect_location(self._transport, self._profile, 0)
        client = SlurmClient(self._transport, where, _COMMAND_TIMEOUT_S)

        def told(text: str) -> None:
            self._ok("test job", text)

        async with run_probe(client, where, options, python=self._profile.python, notify=told) as report:
            for finding in node_findings(report):
                self._report(finding)
            await self._reach(client, where, report.node, str(report.job.job))


def _may_use(partition: Partition, accounts: set[str] | None, groups: set[str]) -> bool:
    """Return whether a partition accepts the user's jobs; ``accounts``: None if unknown or irrelevant."""
    allowed_groups = partition.fields.get("AllowGroups", "ALL")
    denied = set(partition.fields.get("DenyAccounts", "").split(","))
    return (
        partition.state == "UP"
        and (allowed_groups == "ALL" or not groups.isdisjoint(allowed_groups.split(",")))
        and (accounts is None or partition.allow_accounts is None or not accounts.isdisjoint(partition.allow_accounts))
        and (accounts is None or not accounts <= denied)
    )


def _names(names: list[str]) -> str:
    more = len(names) - _MAX_LISTED_NAMES
    return ", ".join(names[:_MAX_LISTED_NAMES]) + (f" and {more} more" if more > 0 else "")
