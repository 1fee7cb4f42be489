"""What the integration tests share: MiniLM, measured once for all of them, and the toy models."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from harness import ROOT, Inputs, Server, row

sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "test" / "models")]

# Room for batches of 20 rows of 512 tokens: enough to be worth batching, few enough to be measured soon.
MINILM_LIMIT = 256 << 20
MEMORY_FRACTION = 0.8  # the server's default

FIGURES = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = []
    config.addinivalue_line("markers", "slow: takes minutes; left out unless -m asks for it")
    # TorchScript is what the server loads; that PyTorch would rather have something else is known.
    config.addinivalue_line("filterwarnings", r"ignore:.torch\.jit\.:DeprecationWarning")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slow" in (config.option.markexpr or ""):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[FIGURES]:
        terminalreporter.section("figures")
        for line in config.stash[FIGURES]:
            terminalreporter.write_line(line)


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Writes a line under the results, whether the test passes or not."""
    return lambda line: request.config.stash[FIGURES].append(f"{request.node.name}: {line}")


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """Another one in every run; HEADROOM_TEST_SEED repeats a run."""
    drawn = int(os.environ.get("HEADROOM_TEST_SEED", secrets.randbelow(1_000_000)))
    request.config.stash[FIGURES].append(f"HEADROOM_TEST_SEED={drawn}")
    return drawn


@pytest.fixture
def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@dataclass
class MiniLM:
    """The demo model's repository, with a cache of measurements beside it that lasts for the session."""

    repository: Path
    cache: Path

    @property
    def file(self) -> Path:
        return self.repository / "minilm" / "1" / "model.pt"

    def options(self, limit: int) -> list[object]:
        return ["--device", "cpu", "--memory-limit", limit, "--calibration-cache", self.cache]

    def changed(self, repository: Path, old: str, new: str) -> MiniLM:
        """A copy in `repository` whose configuration reads `new` for `old`."""
        model = copy_model(self.repository / "minilm", repository)
        text = (model / "config.pbtxt").read_text()
        assert old in text
        (model / "config.pbtxt").write_text(text.replace(old, new))
        return MiniLM(repository, self.cache)


def copy_model(model: Path, repository: Path) -> Path:
    """Copies a model's folder into `repository`; what is large is linked where it can be."""

    def link(source: str, target: str) -> None:
        if not source.endswith(".pt"):
            shutil.copy(source, target)
            return
        try:
            os.link(source, target)
        except OSError:
            shutil.copy(source, target)

    return Path(shutil.copytree(model, repository / model.name, copy_function=link, ignore=shutil.ignore_patterns(".*")))


@pytest.fixture(scope="session")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> MiniLM:
    exported = ROOT / "build" / "models" / "minilm"
    if not (exported / "config.pbtxt").exists():
        pytest.fail(f"the demo model is not in {exported}: `make models` exports it", pytrace=False)
    repository = tmp_path_factory.mktemp("minilm")
    copy_model(exported, repository)
    return MiniLM(repository, tmp_path_factory.mktemp("calibration"))


@pytest.fixture(scope="session")
def minilm_server(minilm: MiniLM) -> Iterator[Server]:
    """MiniLM on the CPU with room enough. Its start is the one that measures; later ones find that kept."""
    with Server(minilm.repository, *minilm.options(MINILM_LIMIT)) as server:
        yield server


@pytest.fixture(scope="session")
def minilm_at_rest(minilm_server: Server) -> int:
    """What MiniLM's weights take as the server counts it: what its budget is not a share of."""
    return MINILM_LIMIT - round(minilm_server.metrics().total("headroom_memory_budget_bytes") / MEMORY_FRACTION)


@pytest.fixture(scope="session")
def reference(minilm: MiniLM) -> Callable[[Inputs], np.ndarray]:
    """The embedding of one row by PyTorch itself: the same module, unbatched, at the row's own length."""
    import torch

    # On a busy machine two threads wait for each other at every operation, and take many times as long as one.
    torch.set_num_threads(1)
    module = torch.jit.load(str(minilm.file)).eval()

    def embed(inputs: Inputs) -> np.ndarray:
        ids = torch.from_numpy(inputs["input_ids"])
        assert ids.shape[0] == 1
        with torch.inference_mode():
            return module(ids, torch.ones_like(ids))[0].numpy()

    embed(row([1000] * 8))
    return embed


@pytest.fixture
def toys(tmp_path: Path) -> Callable[..., Path]:
    """Writes toy models (test/models/make_models.py) into a repository of the test's own: toys("P", "attn", buckets=[32])."""
    from make_models import make

    repository = tmp_path / "toys"
    repository.mkdir()

    def write(*kinds: str, **changes: object) -> Path:
        for kind in kinds:
            make(kind, repository, **changes)
        return repository

    return write
