"""A module whose graph names the device of another machine."""

import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from harness import DRY, HEADROOM, ROOT, Server, row

sys.path.insert(0, str(ROOT / "examples"))


def rewrites(server: Server) -> list[str]:
    return [line for line in server.log().splitlines() if "a device in the model's graph was rewritten" in line]


def test_a_graph_that_names_a_gpu_runs_on_the_cpu_where_the_configuration_means_it(toys):
    repository = toys("on_another_device", buckets=[32])
    with open(repository / "on_another_device" / "config.pbtxt", "a") as config:
        config.write("instance_group { kind: KIND_CPU }\n")
    with Server(repository, "--device", "cpu", "--memory-limit", "256MiB") as server:
        assert server.infer("on_another_device", row([4, 5, 6]))["total"].tolist() == [[15]]
        told = rewrites(server)
        assert len(told) == 1
        assert "cuda:0" in told[0] and "aten::zeros" in told[0] and 'device=\\"cuda:0\\"' in told[0].replace("'", '\\"')


class TracedOnTheCpu(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        # A trace writes down where arange was made.
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        return ((input_ids + positions * 0) * attention_mask).sum(1, keepdim=True).to(torch.float32)


@torch.jit.interface
class Pooling(nn.Module):
    def forward(self, ids: Tensor) -> Tensor:
        pass


class SumOnTheCpu(nn.Module):
    def forward(self, ids: Tensor) -> Tensor:
        return ids.sum(1, keepdim=True) + torch.zeros([4], device="cpu")[:ids.size(0)].unsqueeze(1)


class CallsThroughAnInterface(nn.Module):
    """What such a call runs is not part of forward's own graph."""

    pooling: Pooling  # TorchScript reads the annotation itself, which must not be put off by a __future__ import

    def __init__(self) -> None:
        super().__init__()
        self.pooling = SumOnTheCpu()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.pooling.forward(input_ids * attention_mask)


def traced() -> torch.jit.ScriptModule:
    example = (torch.ones(2, 32, dtype=torch.int64), torch.ones(2, 32, dtype=torch.int64))
    module = torch.jit.trace(TracedOnTheCpu().eval(), example)
    assert 'value="cpu"' in str(module.inlined_graph)
    return module


def with_an_interface() -> torch.jit.ScriptModule:
    return torch.jit.script(CallsThroughAnInterface().eval())


@pytest.mark.parametrize("make", [None, traced, with_an_interface])
def test_a_graph_from_the_cpu_runs_on_a_card(toys, make):
    """Without being rewritten, what is made on the host would meet what is on the card, and fail in warm-up."""
    repository = toys("on_the_cpu", buckets=[32], max_batch_size=4)
    if make is not None:
        torch.jit.save(make(), str(repository / "on_the_cpu" / "1" / "model.pt"))
    with Server(repository, "--device", "cuda", program=(DRY, "--card", "640MiB", "--", HEADROOM)) as server:
        assert server.infer("on_the_cpu", row(np.arange(9)))["total"].shape == (1, 1)
        assert len(rewrites(server)) == 1
