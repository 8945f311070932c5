"""Hosts with a real sshd, each on its own network, for tests. The fixtures are in :mod:`ssh_hosts.fixtures`.

A host is a set of Linux namespaces (network, host name, processes, mounts). It ends as a whole when the process that
created it ends, in any way. Accounts and /home are those of this machine, as on a cluster with LDAP and NFS. Each host
has its own /tmp, /run, /var/log and /etc/ssh.
"""

from ssh_hosts.machine import Machine
from ssh_hosts.site import Site
from ssh_hosts.sshd import SshHost

__all__ = ["Machine", "Site", "SshHost"]
