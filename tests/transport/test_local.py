"""What only the local transport promises; the rest is in test_transport.py."""

import asyncio
import os
import threading

import pytest

from jupyter_slurm.transport.base import Context
from jupyter_slurm.transport.local import LocalTransport


@pytest.fixture
def transport():
    transport = LocalTransport()
    yield transport
    transport.close()


async def test_many_commands_share_few_threads(transport, tmp_path):
    before = threading.active_count()
    for turn in range(5):
        prefixes = [str(tmp_path / f"{turn}-{number}") for number in range(3)]
        many = await asyncio.gather(*(transport.start_once(prefix, ["true"]) for prefix in prefixes))
        assert [(await once.result(None)).exit_code for once in many] == [0, 0, 0]
    assert threading.active_count() <= before + 4  # a fourth: the last one may still be on its way back


async def test_the_environment_is_a_whole_one(transport):
    context = Context(env={"PATH": os.environ["PATH"], "ONLY": "this"})
    done = await transport.run(["/bin/sh", "-c", "echo $ONLY; env | grep -c ^HOME="], context=context)
    assert done.stdout.decode().split() == ["this", "0"]
