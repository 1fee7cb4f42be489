import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The examples import each other by name, as they do when they are run.
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "test" / "models")]
os.environ["HF_HUB_OFFLINE"] = "1"


def pytest_configure(config) -> None:
    # TorchScript is what the server loads; that PyTorch would rather have something else is known.
    config.addinivalue_line("filterwarnings", r"ignore:.torch\.jit\.:DeprecationWarning")
