"""Text of slurm.conf(5), gres.conf(5), cgroup.conf(5) and slurmdbd.conf(5) for a description."""

from __future__ import annotations

import os
import pwd
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from jupyter_slurm.embedded.description import Description, NodeGroup, Partition
from jupyter_slurm.embedded.layout import Layout
from jupyter_slurm.embedded.machine.installation import Installation
from jupyter_slurm.embedded.machine.network import Hosts, is_named_localhost

__all__ = ["Machine", "Ports", "cgroup_conf", "gres_conf", "make_devices", "slurm_conf", "slurmdbd_conf"]


@dataclass(frozen=True)
class Ports:
    """TCP ports: one for each node, one for the controller, one for slurmdbd."""

    controller: int
    database: int
    nodes: dict[str, int]


@dataclass(frozen=True)
class Machine:
    """Facts about the machine: short host name, login name of the cluster's user, cgroup plugin, Slurm.

    An empty plugin means no cgroups.

    ``hosts``: hosts of daemons that do not run on this machine; ``host`` is then that of slurmctld.
    ``is_bound``: whether the daemons listen on one address only.
    """

    host: str
    user: str
    cgroup_plugin: str
    version: tuple[int, int]
    plugin_dir: str
    hosts: Hosts | None = None
    is_bound: bool = True

    @classmethod
    def detect(cls, installation: Installation, cgroup_plugin: str, hosts: Hosts | None = None) -> Machine:
        """Describe this machine and the current user."""
        host = hosts.controller.name if hosts else socket.gethostname().split(".")[0]
        is_bound = hosts is None and is_named_localhost()
        user, version = cls.user_name(), installation.version
        return cls(host, user, cgroup_plugin, version, installation.plugin_dir, hosts, is_bound)

    @property
    def address(self) -> str:
        """Return the address of slurmctld and slurmdbd."""
        return self.hosts.controller.address if self.hosts else "127.0.0.1"

    def place(self, group: NodeGroup, node: str) -> tuple[str, str]:
        """Return host name and address of a node."""
        if self.hosts:
            return self.hosts.nodes[node].name, self.hosts.nodes[node].address
        return node if group.hidden else self.host, self.address

    @staticmethod
    def user_name() -> str:
        """Return the login name of the current user."""
        return pwd.getpwuid(os.geteuid()).pw_name


def slurm_conf(description: Description, layout: Layout, ports: Ports, machine: Machine) -> str:
    """Return the text of slurm.conf."""
    sections = [
        _general(description, layout, ports, machine),
        _scheduling(description),
        _processes(machine),
        _accounting(description, layout, ports, machine),
        list(description.extra),
        [_node(group, name, ports.nodes[name], machine) for group in description.nodes for name in group.names],
        [_partition(description, partition) for partition in description.partitions],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _general(description: Description, layout: Layout, ports: Ports, machine: Machine) -> list[str]:
    lines = [
        f"ClusterName={description.name}",
        f"SlurmctldHost={machine.host}({machine.address})",
        f"SlurmctldPort={ports.controller}",
        f"SlurmUser={machine.user}",
        f"SlurmdUser={machine.user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        *(["CommunicationParameters=NoCtldInAddrAny,NoInAddrAny"] if machine.is_bound else []),
        f"StateSaveLocation={layout.controller_state}",
        f"SlurmdSpoolDir={layout.spool}/%n",
        f"TmpFS={layout.spool}/%n",  # PMIx needs a folder for each node; all nodes have the same /tmp
        f"SlurmctldPidFile={layout.run}/slurmctld.pid",
        f"SlurmdPidFile={layout.run}/slurmd-%n.pid",
        f"SlurmctldLogFile={layout.log}/slurmctld.log",
        f"SlurmdLogFile={layout.log}/slurmd-%n.log",
        "SlurmdParameters=config_overrides",
        "MailProg=/bin/true",
        "ReturnToService=2",
        "MaxArraySize=20001",
        "MaxJobCount=60000",
        f"FirstJobId={_first_job()}",
        "KillWait=5",
        "UnkillableStepTimeout=240",  # a busy computer ends no process in the 60 s after which Slurm drains the node
        *([f"GresTypes={','.join(description.gres_types)}"] if description.gres_types else []),
    ]
    if machine.plugin_dir:
        lines.append(f"PluginDir={machine.plugin_dir}")
    if description.private_data:
        lines.append(f"PrivateData={','.join(description.private_data)}")
    return lines


def _first_job() -> int:
    """Return a job ID that grows by five a second, and wraps after 138 days (MaxJobId is 67,043,328).

    So a restarted cluster does not reuse the ID of an earlier job, unless the earlier cluster ran more than five jobs a
    second all the time. Remains of earlier jobs, such as job directories, are thus distinct from new ones. And no file
    has to outlive a cluster for this purpose.
    """
    return 1_000_000 + int(5 * time.time()) % 60_000_000


def _scheduling(description: Description) -> list[str]:
    lines = [
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SchedulerType=sched/backfill",
        # A test waits for a job, not for the scheduler's next round.
        "SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1",
        "PriorityType=priority/multifactor",
    ]
    if description.preemption.by:
        kind = {"partition": "partition_prio", "qos": "qos"}[description.preemption.by]
        lines.append(f"PreemptType=preempt/{kind}")
        lines.append(f"PreemptMode={description.preemption.mode.upper()}")
    return lines


def _processes(machine: Machine) -> list[str]:
    if machine.cgroup_plugin:
        return [
            "ProctrackType=proctrack/cgroup",
            "TaskPlugin=task/cgroup,task/affinity",
            # A step may have more tasks than this machine has CPUs; automatic binding would refuse such a step.
            "TaskPluginParam=None",
            "JobAcctGatherType=jobacct_gather/cgroup",
            "JobAcctGatherFrequency=task=2",
        ]
    return [
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=task=2",
    ]


def _accounting(description: Description, layout: Layout, ports: Ports, machine: Machine) -> list[str]:
    if not description.accounting:
        return []
    lines = [
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={machine.address}",
        f"AccountingStoragePort={ports.database}",
        f"AccountingStoragePass={layout.munge_socket}",
        f"AccountingStorageTRES={','.join(description.tres)}",
        "AccountingStoreFlags=job_comment",
    ]
    if description.enforce:
        lines.append(f"AccountingStorageEnforce={','.join(description.enforce)}")
    return lines


def _node(group: NodeGroup, name: str, port: int, machine: Machine) -> str:
    host, address = machine.place(group, name)
    words = [
        f"NodeName={name}",
        f"NodeHostname={host}",
        f"NodeAddr={address}",
        f"Port={port}",
        f"CPUs={group.cpus}",
        f"RealMemory={group.memory}",
    ]
    if group.features:
        words.append(f"Feature={','.join(group.features)}")
    gres = [f"gpu:{kind}:{count}" if kind else f"gpu:{count}" for kind, count in group.gpus.items()]
    if gres := [*gres, *(f"{name}:{count}" for name, count in group.gres.items())]:
        words.append(f"Gres={','.join(gres)}")
    return " ".join([*words, "State=UNKNOWN"])


def _partition(description: Description, partition: Partition) -> str:
    words = [f"PartitionName={partition.name}", f"Nodes={','.join(partition.nodes)}"]
    options = {
        "Default": "YES" if partition.default else "",
        "MaxTime": partition.max_time,
        "DefaultTime": partition.default_time,
        "MaxNodes": partition.max_nodes,
        "DefMemPerCPU": partition.default_memory_per_cpu or _memory_per_cpu(description, partition),
        "PriorityTier": partition.priority_tier,
        "PreemptMode": partition.preempt_mode.upper(),
        "GraceTime": partition.grace_time,
        "QOS": partition.qos,
        "AllowAccounts": ",".join(partition.allow_accounts),
        "AllowQos": ",".join(partition.allow_qos),
        "OverSubscribe": partition.oversubscribe,
        "State": partition.state or "UP",
    }
    return " ".join([*words, *(f"{key}={value}" for key, value in options.items() if value not in ("", None))])


def _memory_per_cpu(description: Description, partition: Partition) -> int:
    """Return an even share in MiB. Without a default, the first job without --mem takes all memory of its node."""
    shares = [g.memory // g.cpus for g in description.nodes if set(g.names) & set(partition.nodes)]
    return max(1, min(shares))


def gres_conf(description: Description, layout: Layout) -> str:
    """Return the text of gres.conf; GPUs are links to /dev/null created by :func:`make_devices`."""
    lines = ["AutoDetect=off"]
    for group in description.nodes:
        for name in group.names:
            first = 0
            for kind, count in group.gpus.items():
                last = first + count - 1
                numbers = f"[{first}-{last}]" if count > 1 else str(first)
                word = f" Type={kind}" if kind else ""
                lines.append(f"NodeName={name} Name=gpu{word} File={layout.devices}/{name}/nvidia{numbers}")
                first += count
            for word, count in group.gres.items():
                title, _, kind = word.partition(":")
                lines.append(f"NodeName={name} Name={title}{f' Type={kind}' if kind else ''} Count={count}")
    return "\n".join(lines) + "\n"


def make_devices(description: Description, layout: Layout) -> None:
    """Create the stand-ins for GPUs. They have to be devices: for plain files, CUDA_VISIBLE_DEVICES stays unset."""
    for group in description.nodes:
        for name in group.names:
            directory = layout.devices / name
            directory.mkdir(exist_ok=True)
            for number in range(group.gpu_count):
                link = directory / f"nvidia{number}"
                if not link.is_symlink():
                    link.symlink_to(Path("/dev/null"))


def cgroup_conf(layout: Layout, machine: Machine) -> str:
    """Return the text of cgroup.conf."""
    if not machine.cgroup_plugin:
        return "CgroupPlugin=disabled\n" if machine.version >= (23, 11) else ""
    return "\n".join(
        [
            f"CgroupPlugin={machine.cgroup_plugin}",
            f"CgroupMountpoint={layout.cgroup}",
            "ConstrainCores=yes",
            "ConstrainRAMSpace=yes",
            "ConstrainSwapSpace=yes",
            "AllowedSwapSpace=0",
            "",
        ]
    )


def slurmdbd_conf(layout: Layout, ports: Ports, machine: Machine) -> str:
    """Return the text of slurmdbd.conf. The database has only a socket, and identifies its user by the uid."""
    lines = [
        "DbdHost=localhost",
        f"DbdAddr={machine.address}",
        *(["CommunicationParameters=NoInAddrAny"] if machine.is_bound else []),
        f"DbdPort={ports.database}",
        f"SlurmUser={machine.user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        f"LogFile={layout.log}/slurmdbd.log",
        f"PidFile={layout.run}/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        f"StorageUser={machine.user}",
        "StorageLoc=slurm",
        "CommitDelay=0",
    ]
    if machine.plugin_dir:
        lines.append(f"PluginDir={machine.plugin_dir}")
    return "\n".join(lines) + "\n"
