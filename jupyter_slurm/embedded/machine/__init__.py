"""The machine of the embedded cluster: packages, processes, ports, hosts and control groups."""
