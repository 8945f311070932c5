"""JSON of very large answers: the same as of small ones, but encoded in slices, so that the event loop runs meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_slurm.agent import json_encoding
from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.agent.hosting.agent_host import ThreadedAgent
from jupyter_slurm.config import Settings

JOB = {"key": None, "cluster": "local", "state": "COMPLETED", "known": True, "finished": True, "name": "ção" * 20}
VALUES: dict[str, Any] = {
    "jobs": [{**JOB, "id": str(number), "rows": [[number, None]] * 3} for number in range(2_000)],
    "few with many rows": {"jobs": [{"columns": ["a"], "rows": [[1, 2]] * 9_000}, JOB], "next": None},
    "many names": {str(number): [number] for number in range(20_000)},
    "numbers": tuple(range(100_000)),
    "empty ones": [{}] * 500 + [[]] * 500,
    "no numbers": {"values": [float("nan")] * 1_000},
}


@pytest.mark.parametrize("name", VALUES)
async def test_slices_are_the_same_json_and_the_loop_has_its_turns(name: str) -> None:
    whole, turns = json_encoding.encode(VALUES[name]), 0
    encoding = asyncio.ensure_future(json_encoding.encode_in_slices(VALUES[name]))
    while not encoding.done():
        await asyncio.sleep(0)
        turns += 1
    assert encoding.result() == whole
    assert turns >= len(whole) // 200_000


@pytest.mark.parametrize("value", [None, "é", 1.5, [], {}, {"a": {"b": []}}, [1, {"c": None}]])
async def test_a_small_one_is_encoded_at_once(value: object) -> None:
    assert await json_encoding.encode_in_slices(value) == json_encoding.encode(value)


def test_the_agent_answers_in_slices(
    client: AgentClient, agent: ThreadedAgent, settings: Settings, core: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    encode = json_encoding.encode

    def counted(value: Any) -> bytes:
        sizes.append(len(told := encode(value)))
        return told

    async def jobs(*, active: bool, days: float | None = None) -> Any:
        return VALUES["jobs"]

    monkeypatch.setattr(json_encoding, "encode", counted)
    monkeypatch.setattr(core.local.jobs, "list_jobs", jobs)
    told = client.get("/v1/clusters/local/jobs?state=all&finished=2000")
    assert len(told) == 2_000
    assert sum(sizes) > 400_000
    assert max(sizes) < 60_000
