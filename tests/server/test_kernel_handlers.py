"""Tests of remote kernels that a browser adds to its Jupyter server, and removes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = pytest.mark.slurm

WORDS = ["arandu", "-p", "arandu", "--gpus=a100:1", "idle=30", "name=Mine"]


@pytest.fixture
def client(walked: Any) -> Iterator[httpx.Client]:
    """Provide a client with the token."""
    server = walked[0]
    headers = {"Authorization": f"token {server.token}"}
    base = f"{server.url}jupyter-slurm/api/server/"
    with httpx.Client(headers=headers, base_url=base, timeout=60) as client:
        yield client


def offered(walked: Any, client: httpx.Client) -> dict[str, Any]:
    """Return the kernelspecs of Jupyter itself."""
    told: dict[str, Any] = client.get(f"{walked[0].url}api/kernelspecs").raise_for_status().json()["kernelspecs"]
    return told


def test_a_kernel_is_added_listed_and_removed(walked: Any, client: httpx.Client) -> None:
    before = offered(walked, client)
    answer = client.post("kernelspecs", json={"words": WORDS})
    assert answer.status_code == 201, answer.text
    added = answer.json()
    assert added["display_name"] == "Mine"
    assert client.get("kernelspecs").json()["kernelspecs"] == [added]
    spec = offered(walked, client)[added["name"]]["spec"]
    assert spec["display_name"] == "Mine"
    assert spec["metadata"]["kernel_provisioner"]["provisioner_name"] == "jupyter-slurm"
    assert "--gpus=a100:1" in spec["argv"]
    again = client.post("kernelspecs", json={"words": WORDS})  # no second kernelspec for the same request
    assert (again.status_code, again.json()) == (201, added)

    assert client.delete(f"kernelspecs/{added['name']}").status_code == 200
    assert offered(walked, client).keys() == before.keys()
    gone = client.delete(f"kernelspecs/{added['name']}")
    assert gone.status_code == 404
    assert gone.headers["content-type"] == "application/problem+json"
    assert client.delete("kernelspecs/python3").status_code == 404  # not a remote kernel


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"words": "arandu"}',
        b'{"words": []}',
        b'{"words": ["arandu", 1]}',
        b'{"words": ["arandu\\n"]}',
        b'{"words": ["arandu"], "argv": ["sh"]}',
        b'{"words": ["arandu", "no-such-word=1"]}',
        b'{"words": ["arandu", "--array=1-3"]}',
    ],
)
def test_what_can_be_no_kernel_is_refused_in_words(walked: Any, client: httpx.Client, body: bytes) -> None:
    before = offered(walked, client)
    answer = client.post("kernelspecs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["detail"]
    assert offered(walked, client).keys() == before.keys()


def test_kernels_of_two_clusters_of_one_name_run_on_their_own(
    walked: Any,
    client: httpx.Client,
    cluster: EmbeddedCluster,
    new_cluster: Callable[..., EmbeddedCluster],
    wait_for: Callable[..., Any],
) -> None:
    server, other = walked[0], new_cluster()
    address = {"slurm_conf": str(other.slurm_conf), "path": server.env["PATH"]}
    told = client.post(server.api("v1/clusters"), json=address).raise_for_status().json()
    assert told["name"] == cluster.name, "two clusters have one name"
    known = client.get(server.api("v1/clusters")).raise_for_status().json()
    (own,) = [one["id"] for one in known if one["id"] != told["id"]]
    words = ["--mem=1G", "--time=20:00", "name=Twin"]
    specs = [client.post("kernelspecs", json={"cluster": one, "words": words}).json() for one in (own, told["id"])]
    assert [one["display_name"] for one in specs] == ["Twin", "Twin (2)"], "the second did not replace the first"
    argvs = [offered(walked, client)[one["name"]]["spec"]["env"] for one in specs]
    assert argvs == [{"SLURM_CONF": str(one.slurm_conf)} for one in (cluster, other)]
    kernels = f"{server.url}api/kernels"
    started = [client.post(kernels, json={"name": one["name"]}).raise_for_status().json()["id"] for one in specs]
    try:
        for kernel, where, job in zip(started, (own, told["id"]), (cluster, other), strict=True):
            place = wait_for(lambda kernel=kernel: client.get(f"kernels/{kernel}").json()["place"], "the place", 60)
            assert place["cluster"] == where
            wait_for(lambda job=job: "R" in job.run("squeue", "-ho%t").stdout, "a kernel of this cluster runs", 60)
    finally:
        for kernel in started:
            client.delete(f"{kernels}/{kernel}").raise_for_status()
        for one in specs:
            client.delete(f"kernelspecs/{one['name']}").raise_for_status()
    twice = client.post("kernelspecs", json={"cluster": told["id"], "words": ["arandu", *words]})
    assert (twice.status_code, twice.json()["detail"]) == (400, f"The cluster is given twice: {told['id']} and arandu.")
    gone = client.post("kernelspecs", json={"cluster": "local-00000000", "words": words})
    assert (gone.status_code, gone.json()["detail"]) == (
        400,
        "There is no cluster 'local-00000000' on this computer.",
    )


def test_a_kernel_that_is_none_of_ours_has_no_place(walked: Any, client: httpx.Client) -> None:
    api = f"{walked[0].url}api/kernels"
    kernel = client.post(api, json={"name": "python3"}).raise_for_status().json()["id"]
    try:
        assert client.get(f"kernels/{kernel}").json() == {"place": None}
    finally:
        client.delete(f"{api}/{kernel}").raise_for_status()
    assert client.get(f"kernels/{kernel}").status_code == 404
