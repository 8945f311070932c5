"""A killed agent, and a login by OpenSSH that survives it."""

import os
import signal
import threading

import pytest

from jupyter_slurm.agent.client.agent_client import AgentClient

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow]


def connect(client, code):
    """Log in as a front end does; return the number of questions."""
    asked, over = [], threading.Event()
    path = f"/v1/clusters/{client.post('/v1/clusters', json={'profile': 'far'})['id']}/connect"

    def answer():
        while not over.wait(0.05):
            for prompt in client.get("/v1/prompts"):
                if prompt["id"] not in asked:
                    asked.append(prompt["id"])
                    client.post(f"/v1/prompts/{prompt['id']}", json={"answers": [code()]})

    answering = threading.Thread(target=answer)
    answering.start()
    try:
        assert client.post(path, timeout=120)["connection"]["state"] == "connected"
    finally:
        over.set()
        answering.join()
    return len(asked)


def test_a_log_in_by_openssh_outlives_an_agent_that_is_killed(make_settings, tmp_path, ssh_site, wait_for):
    (tmp_path / "sites").mkdir()
    login = f'[login]\nhost = "login"\nssh_config = "{ssh_site.ssh_config}"\ncarrier = "openssh"\n'
    (tmp_path / "sites" / "far.toml").write_text(login)
    settings = make_settings(agent_host="daemon", sites=[str(tmp_path / "sites")])
    with AgentClient.connect(settings) as client:
        assert connect(client, ssh_site.codes.next) == 1
        first = client.info["pid"]
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: not os.path.exists(f"/proc/{first}"), "the end of the agent")
        assert connect(client, ssh_site.codes.next) == 0
        assert client.info["pid"] != first
        body = {"argv": ["sinfo", "-h"], "table": False, "context": {}}
        assert client.post("/v1/clusters/far/commands", json=body)["exit_code"] == 0
        client.post("/v1/clusters/far/disconnect")
        assert connect(client, ssh_site.codes.next) == 1
        client.post("/v1/clusters/far/disconnect")
        client.post("/v1/agent/stop", json={"only_idle": False})
