"""Starts the built programs as their users do, calls them with tritonclient, and reads their metrics.

    with Server(repository, "--memory-limit", "1GiB") as server:
        server.infer("minilm", row(ids))               one request
        server.send("minilm", row(ids))                the same without waiting: .result(), .cancel()
        server.infer_all("minilm", requests, 32)       many, so many at once; failures are in the list too
        server.metrics().total("headroom_batch_rows_sum", model="minilm")

The programs are those of the folder HEADROOM_BUILD_DIR, build/release where it is not set.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HEADROOM_BUILD_DIR", ROOT / "build" / "release")).resolve()
HEADROOM = BUILD / "headroom"
FAULTY = BUILD / "headroom_faulty"
DRY = BUILD / "headroom_dry"
NAIVE = BUILD / "headroom_naive_batch"
MANY_CALLS = BUILD / "headroom_many_calls"

# Against hanging only: a busy machine may take many times what an idle one does.
START_SECONDS = 400.0
CALL_SECONDS = 200.0
EXIT_SECONDS = 60.0

Inputs = dict[str, np.ndarray]


def row(ids: Sequence[int] | np.ndarray) -> Inputs:
    """A request of one row, without a mask."""
    return {"input_ids": np.asarray(ids, dtype=np.int64)[None, :]}


def rows_of(count: int, ids: Sequence[int] | np.ndarray) -> Inputs:
    """A request of `count` equal rows, without a mask."""
    return {"input_ids": np.tile(np.asarray(ids, dtype=np.int64), (count, 1))}


def run(*command: object, timeout: float = START_SECONDS) -> subprocess.CompletedProcess[str]:
    """A program to its end, with what it wrote."""
    words = [str(word) for word in command]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False)


def eventually(condition: Callable[[], bool], bound: float = EXIT_SECONDS) -> bool:
    """Whether `condition` comes true within `bound` seconds."""
    until = time.monotonic() + bound
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


class Page:
    """A metrics page."""

    def __init__(self, text: str) -> None:
        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def series(self, name: str, **labels: str) -> dict[tuple[str, ...], float]:
        """The value of every series of `name` with these labels, by its other labels' values."""
        found = {}
        for sample in self.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                rest = tuple(value for label, value in sample.labels.items() if label not in labels)
                found[rest] = sample.value
        return found

    def total(self, name: str, **labels: str) -> float:
        """The sum of those series. There must be one: a name that is gone is not a zero."""
        found = self.series(name, **labels)
        assert found, f"no {name} with {labels} on the page"
        return sum(found.values())


@dataclass
class Answer:
    outputs: dict[str, np.ndarray]
    parameters: dict[str, int]

    @staticmethod
    def of(result: triton.InferResult) -> Answer:
        message = result.get_response()
        return Answer(
            {output.name: result.as_numpy(output.name) for output in message.outputs},
            {name: value.int64_param for name, value in message.parameters.items()},
        )

    def __getitem__(self, output: str) -> np.ndarray:
        return self.outputs[output]


class Call:
    """A request under way."""

    def __init__(self, start: Callable[[Callable], object]) -> None:
        self._answer: concurrent.futures.Future[Answer] = concurrent.futures.Future()
        self.done_at = 0.0  # by time.monotonic()
        self._context = start(self._done)

    def _done(self, result: triton.InferResult, error: Exception | None) -> None:
        self.done_at = time.monotonic()
        if error is None:
            self._answer.set_result(Answer.of(result))
        else:
            self._answer.set_exception(error)

    def cancel(self) -> None:
        self._context.cancel()

    def result(self) -> Answer:
        """Raises InferenceServerException where the server refused."""
        return self._answer.result(CALL_SECONDS)

    def refusal(self) -> str:
        """The status that the call failed with, such as DEADLINE_EXCEEDED; OK where it did not fail."""
        try:
            self.result()
        except InferenceServerException as error:
            return str(error.status()).removeprefix("StatusCode.")
        return "OK"


def tensors(inputs: Inputs) -> list[triton.InferInput]:
    made = []
    for name, array in inputs.items():
        tensor = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        made.append(tensor)
    return made


class Server:
    """One server process on free loopback ports."""

    def __init__(self, repository: Path, *options: object, program: Sequence[object] = (HEADROOM,), host: str = "127.0.0.1"):
        self.repository, self.options, self.program, self.host = repository, options, program, host
        self.scratch = tempfile.TemporaryDirectory(prefix="headroom-")
        self.process: subprocess.Popen | None = None
        self.grpc = self.http = ""
        self.start_seconds = 0.0
        self._client: triton.InferenceServerClient | None = None

    @property
    def ready_file(self) -> Path:
        return Path(self.scratch.name) / "ready.json"

    def log(self) -> str:
        return (Path(self.scratch.name) / "log").read_text(errors="replace")

    def spawn(self) -> Server:
        """Starts the process and does not wait for it."""
        command = [*self.program, "serve", "--model-repository", self.repository, "--grpc-address", f"{self.host}:0"]
        command += ["--http-address", f"{self.host}:0", "--ready-file", self.ready_file, *self.options]
        with open(Path(self.scratch.name) / "log", "wb") as log:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def start(self) -> Server:
        began = time.monotonic()
        self.spawn()
        come = eventually(lambda: self.ready_file.exists() or self.process.poll() is not None, START_SECONDS)
        if not come or not self.ready_file.exists():
            self.stop()
            raise AssertionError(f"it did not become ready (exit {self.process.returncode}):\n{self.log()[-4000:]}")
        self.start_seconds = time.monotonic() - began
        addresses = json.loads(self.ready_file.read_text())
        self.grpc, self.http = addresses["grpc"], addresses["http"]
        return self

    def cpu_seconds(self) -> float:
        """What the process has computed so far: says more than the time of day on a busy machine."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        return self.process.wait(EXIT_SECONDS)

    def stop(self) -> None:
        """Ends it however it is; a test that is about its end calls terminate and exit_code."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self.process is None or self.process.poll() is not None:
            return
        self.terminate()
        try:
            self.exit_code()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.scratch.cleanup()

    @property
    def client(self) -> triton.InferenceServerClient:
        if self._client is None:
            self._client = triton.InferenceServerClient(self.grpc)
        return self._client

    def infer(self, model: str, inputs: Inputs, **parameters: object) -> Answer:
        return Answer.of(self.client.infer(model, tensors(inputs), client_timeout=CALL_SECONDS, parameters=parameters))

    def send(self, model: str, inputs: Inputs, deadline: float = CALL_SECONDS, **options: object) -> Call:
        return Call(lambda done: self.client.async_infer(model, tensors(inputs), done, client_timeout=deadline, **options))

    def infer_all(self, model: str, requests: Sequence[Inputs], at_once: int) -> list[Answer | Exception]:
        """One answer a request, in their order; `at_once` of them are under way at a time."""

        async def send_all() -> list[Answer | Exception]:
            turns = asyncio.Semaphore(at_once)
            async with triton_aio.InferenceServerClient(self.grpc) as client:

                async def send(inputs: Inputs) -> Answer:
                    async with turns:
                        result = await client.infer(
                            model, tensors(inputs), client_timeout=CALL_SECONDS, parameters={"explain": True}
                        )
                    return Answer.of(result)

                return await asyncio.gather(*(send(inputs) for inputs in requests), return_exceptions=True)

        return asyncio.run(send_all())

    def metrics(self) -> Page:
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=EXIT_SECONDS) as reply:
            return Page(reply.read().decode())


class Watch:
    """Reads a server's metrics again and again while the block runs, once more at its end."""

    def __init__(self, server: Server, every: float = 0.05) -> None:
        self.pages: list[Page] = []
        self._server, self._every = server, every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._over.wait(self._every):
            self.pages.append(self._server.metrics())

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.pages.append(self._server.metrics())

    def highest(self, gauge: str) -> float:
        return max(page.total(gauge) for page in self.pages)


def failures(answers: Sequence[Answer | Exception]) -> list[str]:
    return [str(answer) for answer in answers if isinstance(answer, Exception)]


def incident_lengths(random: np.random.Generator, count: int) -> Iterator[int]:
    """The incident mix, cut at 512: most are short, and it was the others that took the service down."""
    for kind in random.choice(3, size=count, p=[0.80, 0.15, 0.05]):
        yield int([random.integers(8, 128), random.integers(128, 512), 512][kind])


def burst_lengths(random: np.random.Generator) -> list[int]:
    """The burst of the launch day: 64 rows of 512 among 200 of under 128."""
    lengths = [512] * 64 + [int(length) for length in random.integers(8, 128, size=200)]
    random.shuffle(lengths)
    return lengths


def random_ids(random: np.random.Generator, length: int) -> np.ndarray:
    """Words of MiniLM's vocabulary, which begin after its special tokens."""
    return random.integers(1000, 30522, size=length)
