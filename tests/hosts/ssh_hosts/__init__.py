"""Hosts with a real sshd, each on a network of its own, for tests. The fixtures are in :mod:`ssh_hosts.fixtures`.

A host is a set of Linux namespaces (network, host name, processes, mounts) that ends, whole, when the process that
made it ends, in whatever way. Accounts and /home are those of this machine, as on a cluster with LDAP and NFS; /tmp,
/run, /var/log and /etc/ssh are each host's own.
"""

from ssh_hosts.machine import Machine
from ssh_hosts.site import Site
from ssh_hosts.sshd import SshHost

__all__ = ["Machine", "Site", "SshHost"]
