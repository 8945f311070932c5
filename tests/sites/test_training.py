"""Tests of data parallel training on a replica, with a real PyTorch: one Slurm task for each GPU, over two nodes."""

from __future__ import annotations

import re

import pytest
from replicas import Replica

# Each rank has one of four points and learns the line through all: the gradients are combined over the network.
TRAIN = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(0)
dist.init_process_group("gloo")
rank, model = dist.get_rank(), DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.tensor([[float(rank)]])
for step in range(200):
    optimizer.zero_grad()
    loss = ((model(x) - 3 * x - 1) ** 2).mean()
    loss.backward()
    optimizer.step()
learned = [round(value.item(), 1) for value in model.parameters()]
gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
print(dist.get_world_size(), os.environ["SLURMD_NODENAME"], os.environ["LOCAL_RANK"], len(gpus), *learned)
dist.destroy_process_group()
"""


@pytest.mark.sites("skynet")
def test_pytorch_trains_with_a_task_for_each_gpu_of_two_nodes(
    replica: Replica, torch_variables: dict[str, str]
) -> None:
    exported = ",".join(f"{name}={value}" for name, value in torch_variables.items())
    line = (
        f"-p short --qos=short --exclude=clippy -N 2 --ntasks-per-node 2 --gpus-per-task 1 -c 1 --export=ALL,{exported}"
    )
    cell = replica.laptop.run(
        f"%%sbatch {line} launcher=srun wait python=/usr/bin/python3 out=learned as=trained\n{TRAIN}", timeout=240
    )
    assert not cell.error, cell.error
    lines = sorted(replica.laptop.value("trained.stdout").splitlines())
    found = [re.fullmatch(r"\[(\d)\] 4 (\w+) (\d) 1 3\.0 1\.0", line) for line in lines]
    assert all(found), lines
    told = [one.groups() for one in found if one]
    assert [rank for rank, _, _ in told] == ["0", "1", "2", "3"]
    assert [local for _, _, local in told] == ["0", "1", "0", "1"]
    nodes = [node for _, node, _ in told]
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]
    assert {*nodes} == {"vicki", "gerty"}
    assert replica.laptop.value("learned") == "[3.0, 1.0]"
