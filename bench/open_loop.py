"""Open-loop load: every call's time is fixed before the first is sent, and its latency counts from that time, whether the sender or
the server was late. What bench/long_tail.py and bench/replay.py share: calls, sending, judging answers, and the report.

A call is *answered*, *refused by rule*, or a *fault*. Faults, of which a run must have none: an answer that is wrong where it can be
worked out here, a malformed call that is answered, a valid one refused as invalid, UNKNOWN, INTERNAL, a lost connection, no answer.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import dataclasses
import gc
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Sequence

import grpc
import numpy as np
from tritonclient.grpc import model_config_pb2, service_pb2  # noqa: F401 (the second needs the first)

SERVICE = "/inference.GRPCInferenceService/"
MESSAGE_BYTES = 64 << 20
NO_ANSWER_SECONDS = 300.0  # against hanging: a call that is still out so long after the last one was sent is missing
PERCENTILES = (50, 90, 99, 99.9)

VALID, NULL, WRONG_BYTES, OVER_LONG = "valid", "null", "wrong_bytes", "over_long"
MALFORMED = (NULL, WRONG_BYTES, OVER_LONG)

# What a server may say instead of an answer, and be right.
REFUSALS = {
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}
TOO_LONG = re.compile(r"\blength\b.*\b(limit|long)", re.IGNORECASE)
# Words of gRPC's own transport: nobody refused the call, the connection went.
CONNECTION = re.compile(
    r"failed to connect|connection (reset|refused|closed)|socket closed|recvmsg|broken pipe|endpoint closing|keepalive|goaway"
    r"|stream removed|transport|tcp_",
    re.IGNORECASE,
)


@dataclasses.dataclass
class Call:
    at: float  # seconds from the start of the run
    length: int
    kind: str = VALID
    cancel_after: float | None = None  # seconds after it was sent

    # Filled in by the run.
    sent: float = math.nan
    ended: float = math.nan
    status: str = "MISSING"
    text: str = ""
    fault: str = ""
    answer: service_pb2.ModelInferResponse | None = None
    ids: np.ndarray | None = None


@dataclasses.dataclass
class Model:
    """What has to be known of a model to call it: asked of the server."""

    name: str
    tokens: str
    datatype: str
    output: str
    columns: int  # of the output, 0 where that varies
    highest_id: int

    @property
    def computed_by_hand(self) -> bool:
        """The toys of test/models whose row is [count, sum of ids, padded length, rows]."""
        return self.output == "row" and self.columns == 4

    @staticmethod
    async def ask(channel: grpc.aio.Channel, name: str, highest_id: int) -> Model:
        metadata = channel.unary_unary(
            SERVICE + "ModelMetadata",
            request_serializer=service_pb2.ModelMetadataRequest.SerializeToString,
            response_deserializer=service_pb2.ModelMetadataResponse.FromString,
        )
        told = await metadata(service_pb2.ModelMetadataRequest(name=name), timeout=30)
        tokens = next((i for i in told.inputs if i.datatype in ("INT64", "INT32") and list(i.shape)[-1:] == [-1]), None)
        if tokens is None:
            raise SystemExit(f"model {name} has no input of token ids of variable length")
        shape = list(told.outputs[0].shape)
        columns = shape[1] if len(shape) == 2 else 0
        return Model(name, tokens.name, tokens.datatype, told.outputs[0].name, max(columns, 0), highest_id)

    def request(self, call: Call, random: np.random.Generator) -> bytes:
        ids = random.integers(0, self.highest_id + 1, size=call.length).astype(np.int64 if self.datatype == "INT64" else np.int32)
        content = ids.tobytes()
        if call.kind == NULL:
            content = b""
        elif call.kind == WRONG_BYTES:
            content = content[:-1] if call.length % 2 else content + b"\0\0\0"
        elif self.computed_by_hand:
            call.ids = ids
        message = service_pb2.ModelInferRequest(model_name=self.name)
        message.inputs.add(name=self.tokens, datatype=self.datatype, shape=[1, call.length])
        message.raw_input_contents.append(content)
        return message.SerializeToString()

    def fault_of(self, call: Call) -> str:
        """What is wrong with an answer; nothing where it is right, as far as can be told here."""
        answer = call.answer
        values = {output.name: raw for output, raw in zip(answer.outputs, answer.raw_output_contents)}
        if self.output not in values:
            return f"the answer has no {self.output}"
        output = next(o for o in answer.outputs if o.name == self.output)
        if output.datatype != "FP32":
            return ""
        row = np.frombuffer(values[self.output], dtype=np.float32)
        if list(output.shape)[:1] != [1] or row.size != math.prod(output.shape):
            return f"the answer has the shape {list(output.shape)} and {row.size} values"
        if not np.isfinite(row).all():
            return "the answer is not finite"
        if not self.computed_by_hand:
            return ""
        # A row that was cut says so, and counts what was kept.
        kept = call.ids[: int(row[0])] if "truncated_from" in answer.parameters else call.ids
        right = (float(len(kept)), float(np.float32(kept.sum())))
        if int(row[0]) == right[0] and abs(float(row[1]) - right[1]) <= 1e-5 * right[1] + 0.5:
            return ""
        return f"the answer is {row[:2].tolist()}, right is {list(right)}"


def judge(call: Call, model: Model, deadline: float | None) -> str:
    """Why the way that the call ended is a fault; empty where it is not."""
    if call.status == "MISSING":
        return "no answer"
    if call.status == "OK":
        return f"a call with {call.kind} was answered" if call.kind in (NULL, WRONG_BYTES) else model.fault_of(call)
    status = grpc.StatusCode[call.status]
    if status == grpc.StatusCode.CANCELLED:
        return "" if call.cancel_after is not None else "cancelled by the server"
    if status == grpc.StatusCode.INVALID_ARGUMENT:
        return "" if call.kind != VALID or TOO_LONG.search(call.text) else f"a valid call was refused: {call.text}"
    if status == grpc.StatusCode.DEADLINE_EXCEEDED and deadline is None:
        return "no answer"  # the client's own limit against hanging
    if status == grpc.StatusCode.UNAVAILABLE and CONNECTION.search(call.text):
        return f"the connection was lost: {call.text}"
    return "" if status in REFUSALS else f"{call.status}: {call.text}"


class Sender:
    """Sends calls at their times over a few connections, as one event loop can."""

    def __init__(self, options: argparse.Namespace, model: Model, channels: Sequence[grpc.aio.Channel]) -> None:
        self._options, self._model = options, model
        self._methods = [channel.unary_unary(SERVICE + "ModelInfer") for channel in channels]
        self._deadline = options.deadline_ms / 1000 if options.deadline_ms else None
        self._start = 0.0

    def _metadata(self, call: Call, number: int) -> list[tuple[str, str]] | None:
        if not self._options.client_key:
            return None
        # Those who send nonsense are callers of their own, as they are in life.
        who = f"client-{number % self._options.clients}" if call.kind == VALID else "client-malformed"
        return [(self._options.client_key, who)]

    async def _send(self, call: Call, number: int, request: bytes) -> None:
        timeout = self._deadline or NO_ANSWER_SECONDS
        call.sent = time.perf_counter() - self._start
        under_way = self._methods[number % len(self._methods)](request, timeout=timeout, metadata=self._metadata(call, number))
        if call.cancel_after is not None:
            asyncio.get_running_loop().call_later(call.cancel_after, under_way.cancel)
        try:
            reply = await under_way
            call.ended = time.perf_counter() - self._start
            call.status, call.answer = "OK", service_pb2.ModelInferResponse.FromString(reply)
        except grpc.aio.AioRpcError as error:
            call.ended = time.perf_counter() - self._start
            call.status, call.text = error.code().name, error.details() or ""
        except asyncio.CancelledError:
            if call.cancel_after is None:
                raise
            call.ended, call.status = time.perf_counter() - self._start, "CANCELLED"
        call.fault = judge(call, self._model, self._deadline)
        call.answer = call.ids = None  # thousands are in flight

    async def run(self, calls: Sequence[Call], random: np.random.Generator) -> None:
        # Built ahead in small portions: a request that is built when it is due makes the next one late.
        ahead = collections.deque()
        pending: set[asyncio.Task] = set()
        gc.disable()
        self._start = time.perf_counter()
        waiting = iter(enumerate(calls))
        for number, call in waiting:
            ahead.append((number, call, self._model.request(call, random)))
            if len(ahead) >= 64:
                break
        while ahead:
            number, call, request = ahead.popleft()
            delay = call.at - (time.perf_counter() - self._start)
            if delay > 0:
                await asyncio.sleep(delay)
            task = asyncio.create_task(self._send(call, number, request))
            pending.add(task)
            task.add_done_callback(pending.discard)
            await asyncio.sleep(0)  # so that it is sent before the next request is built
            following = next(waiting, None)
            if following is not None:
                ahead.append((*following, self._model.request(following[1], random)))
        gc.enable()
        if pending:
            await asyncio.wait(set(pending), timeout=NO_ANSWER_SECONDS)
        for call in calls:
            if call.status == "MISSING":
                call.fault = judge(call, self._model, self._deadline)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--address", default="127.0.0.1:8001", help="the server's gRPC address [%(default)s]")
    parser.add_argument("--model", default="minilm", help="[%(default)s]")
    parser.add_argument("--highest-id", type=int, default=999, help="token ids are drawn from 0 to this [%(default)s]")
    parser.add_argument("--seed", type=int, default=None, help="drawn, and printed, where it is not given")
    parser.add_argument("--connections", type=int, default=4, help="[%(default)s]")
    parser.add_argument("--deadline-ms", type=float, default=0, help="of each call; 0: none [%(default)s]")
    parser.add_argument("--client-key", default="", help="metadata key that names the caller; none is sent without it")
    parser.add_argument("--clients", type=int, default=10, help="callers, with --client-key [%(default)s]")
    parser.add_argument("--realtime", action="store_true", help="schedule the sender SCHED_FIFO, where that is allowed")


def number_above_zero(text: str) -> float:
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"must be above 0, not {text}")
    return value


def share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be from 0 to 1, not {text}")
    return value


def seed_of(options: argparse.Namespace) -> int:
    if options.seed is None:
        options.seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    return options.seed


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    told = {f"p{p:g}": None for p in PERCENTILES} | {"max": None}
    if len(values):
        told |= {f"p{p:g}": round(1000 * float(np.percentile(values, p)), 3) for p in PERCENTILES}
        told["max"] = round(1000 * float(max(values)), 3)
    return told


def reason_of(call: Call) -> str:
    """The words of a refusal without its numbers and names, so that like ones are counted together."""
    words = re.sub(r"'[^']*'|\"[^\"]*\"", "…", call.text)
    return re.sub(r"\d[\d.,]*", "N", words)[:100]


def report(tool: str, calls: Sequence[Call], options: argparse.Namespace) -> dict:
    by_status = collections.Counter(call.status for call in calls)
    by_reason = collections.Counter(f"{call.status}: {reason_of(call)}" for call in calls if call.status not in ("OK", "MISSING"))
    faults = collections.Counter(re.sub(r"\d[\d.,]*", "N", call.fault)[:160] for call in calls if call.fault)
    answered = [call for call in calls if call.status == "OK"]
    end = max((call.ended for call in calls if not math.isnan(call.ended)), default=0.0)
    started = [call for call in calls if not math.isnan(call.sent)]
    return {
        "tool": tool,
        "options": {name: value for name, value in sorted(vars(options).items())},
        "sent": len(started),
        "ok": len(answered),
        "refused_by_rule": sum(call.status not in ("OK", "MISSING") and not call.fault for call in calls),
        "faults": sum(bool(call.fault) for call in calls),
        "by_kind": dict(collections.Counter(call.kind for call in calls)),
        "cancels_sent": sum(call.cancel_after is not None for call in calls),
        "by_status": dict(by_status.most_common()),
        "by_reason": dict(by_reason.most_common(20)),
        "fault_reasons": dict(faults.most_common(20)),
        "seconds": round(end, 3),
        "ok_per_second": round(len(answered) / end, 3) if end > 0 else None,
        "latency_ms": percentiles([call.ended - call.at for call in answered]),
        "sender_lag_ms": percentiles([call.sent - call.at for call in started]),
    }


def print_report(told: dict) -> None:
    """A table for people on stderr, one JSON object on stdout."""

    def line(*words: object) -> None:
        print(*words, file=sys.stderr)

    def row(name: str, values: dict[str, float | None]) -> None:
        line(f"  {name:22}", "  ".join(f"{key} {'-' if value is None else f'{value:.1f}'}" for key, value in values.items()))

    line(f"\n{told['tool']}: {told['sent']} sent in {told['seconds']:.1f} s, {told['ok']} answered"
         f" ({told['ok_per_second']} a second), {told['refused_by_rule']} refused by rule, {told['faults']} faults")
    row("latency, ms", told["latency_ms"])
    row("sender's lag, ms", told["sender_lag_ms"])
    for title in ("by_kind", "by_status", "by_reason", "fault_reasons"):
        for name, count in told[title].items():
            line(f"  {title.removeprefix('by_').replace('_', ' '):22}{count:8}  {name}")
    print(json.dumps(told, ensure_ascii=False), flush=True)


def run_program(main: Callable[[], int]) -> None:
    """Ends the program with main's code; with 2 and its words where it gives up by SystemExit("words")."""
    try:
        sys.exit(main())
    except SystemExit as end:
        if not isinstance(end.code, str):
            raise
        print(end.code, file=sys.stderr)
        sys.exit(2)


def main(tool: str, options: argparse.Namespace, make_calls: Callable[[np.random.Generator], list[Call]]) -> int:
    """Makes the calls, sends them, reports. The exit code: 0, or 1 where there was a fault."""
    random = np.random.default_rng(seed_of(options))
    calls = sorted(make_calls(random), key=lambda call: call.at)
    if not calls:
        print(f"{tool}: there is no call to send", file=sys.stderr)
        return 2
    if options.realtime:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        except OSError as error:
            print(f"{tool}: not scheduled SCHED_FIFO: {error}", file=sys.stderr)

    async def run() -> None:
        settings = [("grpc.max_send_message_length", MESSAGE_BYTES), ("grpc.max_receive_message_length", MESSAGE_BYTES)]
        # A subchannel pool each, else they share one connection.
        apart = [*settings, ("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(options.address, options=apart) for _ in range(options.connections)]
        try:
            model = await Model.ask(channels[0], options.model, options.highest_id)
            await asyncio.gather(*(channel.channel_ready() for channel in channels))
            await Sender(options, model, channels).run(calls, random)
        finally:
            for channel in channels:
                await channel.close()

    try:
        asyncio.run(run())
    except grpc.aio.AioRpcError as error:
        print(f"{tool}: {options.address}: {error.code().name}: {error.details()}", file=sys.stderr)
        return 2
    told = report(tool, calls, options)
    print_report(told)
    return 1 if told["faults"] else 0
