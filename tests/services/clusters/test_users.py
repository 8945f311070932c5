"""Tests that a process uses the cluster of its last request."""

from __future__ import annotations

from jupyter_slurm.services.connections.clients import ClientRegistry, ClientUse

FIT, PLOT = ClientUse("kernel", "fit.ipynb", 12), ClientUse("kernel", "plot.ipynb", 13)


def test_the_list_of_each_cluster_and_who_hears_of_it() -> None:
    changed: list[str] = []
    users = ClientRegistry(changed.append, clock=iter(range(9)).__next__)
    for user, cluster in ((FIT, "far"), (PLOT, "far"), (FIT, "far"), (PLOT, "near")):
        users.join(user, cluster)
    assert changed == ["far", "far", "far", "near"]
    assert users.clients_to_api("far") == [{"kind": "kernel", "name": "fit.ipynb", "pid": 12, "since": 0}]
    assert [user["since"] for user in users.clients_to_api("near")] == [2]
    users.leave(FIT)
    users.leave(FIT)
    assert changed[4:] == ["far"]
    assert users.clients_to_api("far") == []


def test_another_name_is_no_other_process() -> None:
    changed: list[str] = []
    users = ClientRegistry(changed.append, clock=iter(range(9)).__next__)
    users.join(FIT, "far")
    users.join(ClientUse("kernel", "fitted.ipynb", 12), "far")
    assert users.clients_to_api("far") == [{"kind": "kernel", "name": "fitted.ipynb", "pid": 12, "since": 0}]
    assert changed == ["far", "far"]
    users.leave(FIT)
    assert users.clients_to_api("far") == []
