"""The dry CUDA runtime, seen from programs that run on it: bare ones through ctypes, and libtorch through Python.

Run with the project's own Python, which has torch; HEADROOM_BUILD_DIR says where the binaries are:

    .venv/bin/python -m pytest test/runtime/dry_cuda
"""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("HEADROOM_BUILD_DIR", ROOT / "build" / "release")).resolve()
LAUNCHER = BUILD / "headroom_dry"
SITE = next(ROOT.glob(".venv/lib/python3*/site-packages"), None)

MIB = 1 << 20
GIB = 1 << 30

# What a bare program needs of the runtime, without the second that importing torch takes.
BARE = """
import ctypes
cuda = ctypes.CDLL(None)

def malloc(size):
    pointer = ctypes.c_void_p()
    return cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)), pointer

def info():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value, total.value

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONFIGURATION, INVALID_DEVICE, INVALID_HANDLE = 0, 1, 2, 9, 101, 400
MIB, GIB = 1 << 20, 1 << 30
"""

TORCH = """
import torch
MIB, GIB = 1 << 20, 1 << 30

def fails_for_memory(make):
    try:
        make()
    except torch.OutOfMemoryError:
        return True
    return False

def take(size, device="cuda:0"):
    return torch.empty(size, dtype=torch.uint8, device=device)
"""


def launch(*words, env=None):
    return subprocess.run(
        [str(LAUNCHER), *words], capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})}
    )


def run_script(card, prelude, script, options=(), env=None):
    """Runs the script on the card; its assertions are this test's."""
    program = prelude + textwrap.dedent(script)
    done = launch("--card", card, *options, "--", sys.executable, "-c", program, env=env)
    assert done.returncode == 0, done.stderr
    return done


# --- Accounting, by the byte -----------------------------------------------------------------------------------------


def test_free_memory_is_the_total_less_what_was_allocated():
    run_script("16GiB", BARE, """
        assert info() == (16 * GIB, 16 * GIB)
        error, a = malloc(1)
        assert error == SUCCESS and info() == (16 * GIB - 1, 16 * GIB)
        error, b = malloc(5 * GIB)
        assert error == SUCCESS and info() == (11 * GIB - 1, 16 * GIB)
        assert cuda.cudaFree(a) == SUCCESS and info() == (11 * GIB, 16 * GIB)
        assert cuda.cudaFree(b) == SUCCESS and info() == (16 * GIB, 16 * GIB)
    """)


def test_a_card_gives_its_last_byte_and_not_one_more():
    run_script("640MiB", BARE, """
        error, whole = malloc(640 * MIB)
        assert error == SUCCESS and info() == (0, 640 * MIB)
        error, more = malloc(1)
        assert error == OUT_OF_MEMORY and more.value is None
        assert cuda.cudaPeekAtLastError() == OUT_OF_MEMORY
        assert cuda.cudaGetLastError() == OUT_OF_MEMORY and cuda.cudaGetLastError() == SUCCESS
        assert cuda.cudaFree(whole) == SUCCESS
        assert malloc(640 * MIB + 1)[0] == OUT_OF_MEMORY and malloc(640 * MIB)[0] == SUCCESS
    """)


def test_what_is_not_an_allocation_cannot_be_freed():
    run_script("1GiB", BARE, """
        error, a = malloc(4096)
        assert cuda.cudaFree(ctypes.c_void_p(a.value + 1)) == INVALID_VALUE
        assert cuda.cudaFree(a) == SUCCESS and cuda.cudaFree(a) == INVALID_VALUE
        assert cuda.cudaFree(None) == SUCCESS and info() == (GIB, GIB)
    """)


def test_many_threads_never_get_more_than_the_card_has():
    run_script("64MiB", BARE, """
        import threading
        granted, start = [], threading.Barrier(8)

        def grab():
            start.wait()
            for _ in range(200):
                error, pointer = malloc(MIB)
                if error == SUCCESS:
                    granted.append(pointer)

        threads = [threading.Thread(target=grab) for _ in range(8)]
        [t.start() for t in threads], [t.join() for t in threads]
        assert len(granted) == 64 and info() == (0, 64 * MIB)
        assert all(cuda.cudaFree(p) == SUCCESS for p in granted) and info() == (64 * MIB, 64 * MIB)
    """)


def test_memory_held_by_others_is_not_free():
    run_script("4GiB,4GiB", BARE, """
        assert info() == (4 * GIB - 3 * MIB, 4 * GIB)
        assert malloc(4 * GIB)[0] == OUT_OF_MEMORY
        assert cuda.cudaSetDevice(1) == SUCCESS and info() == (4 * GIB, 4 * GIB)
    """, options=("--held-by-others", "3MiB"))


def test_others_may_come_and_go_while_the_program_runs():
    run_script("4GiB", BARE, """
        others = lambda device, size: cuda.headroom_dry_cuda_set_held_by_others(device, ctypes.c_uint64(size))
        error, mine = malloc(GIB)
        assert others(0, 3 * GIB - 1) == 0 and info() == (1, 4 * GIB)
        assert others(0, 100 * GIB) == 0 and info() == (0, 4 * GIB)
        assert malloc(1)[0] == OUT_OF_MEMORY
        assert others(0, 0) == 0 and info() == (3 * GIB, 4 * GIB)
        assert others(1, 0) == -1
    """)


# --- Faults -------------------------------------------------------------------------------------------------------------


def faults(text):
    return f"assert cuda.headroom_dry_cuda_set_faults(b'{text}') == 0\n"


@pytest.mark.parametrize("text, failing", [
    ("malloc_fails_at=3", [3]),
    ("malloc_fails_at=2 malloc_failures=3", [2, 3, 4]),
    ("malloc_fails_every=4", [4, 8]),
    ("malloc_fails_every=4 malloc_failures=2", [4, 5, 8, 9]),
    ("malloc_fails_at=1 malloc_fails_every=6", [1, 6]),
    ("", []),
])
def test_an_allocation_fails_as_on_a_full_card(text, failing):
    run_script("1GiB", BARE, f"""
        assert malloc(1)[0] == SUCCESS  # before: not counted
        {faults(text)}
        answers = [malloc(MIB) for _ in range(9)]
        assert [n + 1 for n, (error, _) in enumerate(answers) if error != SUCCESS] == {failing}
        assert all(error in (SUCCESS, OUT_OF_MEMORY) for error, _ in answers)
        assert info()[0] == GIB - 1 - (9 - len({failing})) * MIB
        {faults("")}
        assert cuda.cudaGetLastError() == (OUT_OF_MEMORY if {failing} else SUCCESS)
        assert all(malloc(MIB)[0] == SUCCESS for _ in range(9))
    """)


def test_a_memory_query_fails_and_nothing_else_does():
    run_script("1GiB", BARE, f"""
        ask = lambda: cuda.cudaMemGetInfo(ctypes.byref(ctypes.c_size_t()), ctypes.byref(ctypes.c_size_t()))
        {faults("memory_query_fails_after=2")}
        assert [ask() for _ in range(4)] == [SUCCESS, SUCCESS, 999, 999]
        assert malloc(1)[0] == SUCCESS and cuda.cudaDeviceSynchronize() == SUCCESS
    """)


LAUNCH = """
class Config(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_size_t),
                ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]

def launch():
    config = Config((ctypes.c_uint * 3)(1, 1, 1), (ctypes.c_uint * 3)(1, 1, 1), 0, None, None, 0)
    return cuda.cudaLaunchKernelExC(ctypes.byref(config), None, None)

ASSERT = 710
"""


def test_a_lost_card_answers_everything_with_its_error_and_the_other_card_is_well():
    done = run_script("1GiB,1GiB", BARE + LAUNCH, f"""
        stream, event, pinned, number = (ctypes.c_void_p() for _ in range(4))
        assert cuda.cudaStreamCreate(ctypes.byref(stream)) == SUCCESS
        assert cuda.cudaEventCreate(ctypes.byref(event)) == SUCCESS
        assert cuda.cudaHostAlloc(ctypes.byref(pinned), ctypes.c_size_t(8), 0) == SUCCESS
        error, a = malloc(64)
        {faults("lost_after_launches=2")}
        # The third trips the assertion, and does not know it yet.
        assert [launch() for _ in range(4)] == [SUCCESS, SUCCESS, SUCCESS, ASSERT]
        size, handle = ctypes.c_size_t(8), ctypes.byref(ctypes.c_void_p())
        for answer in (malloc(1)[0], cuda.cudaFree(a), cuda.cudaMemcpy(a, a, size, 3), cuda.cudaMemset(a, 0, size),
                       cuda.cudaMemGetInfo(ctypes.byref(size), ctypes.byref(size)), cuda.cudaDeviceSynchronize(),
                       cuda.cudaStreamSynchronize(stream), cuda.cudaStreamQuery(stream), cuda.cudaStreamQuery(None),
                       cuda.cudaStreamCreate(handle), cuda.cudaEventCreate(handle), cuda.cudaEventRecord(event, stream),
                       cuda.cudaEventQuery(event), cuda.cudaHostAlloc(handle, size, 0), cuda.cudaFreeHost(pinned)):
            assert answer == ASSERT
        # It does not go away: not by reading it, and not by other faults.
        assert [cuda.cudaGetLastError() for _ in range(3)] == [ASSERT] * 3
        {faults("")}
        assert cuda.cudaDeviceSynchronize() == ASSERT and launch() == ASSERT
        assert cuda.cudaSetDevice(1) == SUCCESS and launch() == SUCCESS and malloc(64)[0] == SUCCESS
        cuda.cudaGetLastError()
        assert info() == (GIB - 64, GIB) and cuda.cudaDeviceSynchronize() == SUCCESS
        assert cuda.cudaGetLastError() == SUCCESS
    """)
    assert done.stderr.count("card 0 is lost") == 1


def test_the_faults_file_is_read_again_when_it_changes(tmp_path):
    run_script("1GiB,1GiB", BARE, f"""
        import os, time
        def write(text):
            open({str(tmp_path / "part")!r}, "w").write(text)
            os.replace({str(tmp_path / "part")!r}, {str(tmp_path / "faults")!r})
        assert info() == (GIB - 7 * MIB, GIB)  # there is no file yet: what the launcher was told
        write("held_by_others=512MiB,1GiB\\n")
        assert info() == (512 * MIB, GIB)
        cuda.cudaSetDevice(1)
        assert info() == (0, GIB) and malloc(1)[0] == OUT_OF_MEMORY
        write("malloc_fails_at=2")
        assert [malloc(1)[0] for _ in range(3)] == [SUCCESS, OUT_OF_MEMORY, SUCCESS]
        write("malloc_fails_at=2 ")  # the same again, as a new file: counts begin anew
        assert [malloc(1)[0] for _ in range(3)] == [SUCCESS, OUT_OF_MEMORY, SUCCESS]
        write("nonsense")
        assert [malloc(1)[0] for _ in range(3)] == [SUCCESS] * 3
        write("")
        cuda.cudaSetDevice(0)
        assert info() == (GIB - 7 * MIB, GIB)
        write("synchronize_takes_ms=50")
        began = time.monotonic()
        assert cuda.cudaDeviceSynchronize() == SUCCESS and time.monotonic() - began >= 0.05
    """, options=("--held-by-others", "7MiB", "--faults-file", str(tmp_path / "faults")))


def test_faults_that_are_none_are_told_and_change_nothing():
    done = run_script("1GiB", BARE, """
        assert cuda.headroom_dry_cuda_set_faults(b"malloc_fails_at=1") == 0
        for text in (b"malloc_fails_at", b"malloc_fails_at=0", b"malloc_fails_at=-1", b"held_by_others=1GB", b"held_by_others=1B,1B",
                     b"=1", b"malloc_fails_at=2 card_on_fire=1", b"lost_after_launches=1x"):
            assert cuda.headroom_dry_cuda_set_faults(text) == -1, text
        assert cuda.headroom_dry_cuda_set_faults(None) == -1
        assert malloc(1)[0] == OUT_OF_MEMORY
    """)
    assert "there is no fault 'card_on_fire'" in done.stderr


def test_torch_sees_a_lost_card_as_a_genuine_one():
    run_script("1GiB", TORCH, """
        import ctypes
        x = take(MIB)
        ctypes.CDLL(None).headroom_dry_cuda_set_faults(b"lost_after_launches=0")
        for act in (lambda: x.add_(1), torch.cuda.synchronize, lambda: x + 1, lambda: take(64 * MIB), lambda: x.cpu()):
            try:
                act()
                assert False
            except RuntimeError as error:
                assert "device-side assert triggered" in str(error), error
        import os
        os._exit(0)
    """)


def test_each_thread_has_its_own_current_device():
    run_script("1GiB,2GiB", BARE, """
        import threading
        assert cuda.cudaSetDevice(1) == SUCCESS
        seen = []
        thread = threading.Thread(target=lambda: seen.append(info()))
        thread.start(), thread.join()
        assert seen == [(GIB, GIB)] and info() == (2 * GIB, 2 * GIB)
        assert cuda.cudaSetDevice(2) == INVALID_DEVICE and info() == (2 * GIB, 2 * GIB)
    """)


# --- Mistakes that a GPU would report --------------------------------------------------------------------------------


def test_streams_and_events_belong_to_their_card_and_end():
    run_script("1GiB,1GiB", BARE, """
        stream, event = ctypes.c_void_p(), ctypes.c_void_p()
        assert cuda.cudaStreamCreate(ctypes.byref(stream)) == SUCCESS
        assert cuda.cudaSetDevice(1) == SUCCESS
        assert cuda.cudaEventCreate(ctypes.byref(event)) == SUCCESS
        assert cuda.cudaEventRecord(event, stream) == INVALID_HANDLE
        assert cuda.cudaEventRecord(event, None) == SUCCESS
        assert cuda.cudaStreamWaitEvent(stream, event, 0) == SUCCESS
        assert cuda.cudaStreamDestroy(stream) == SUCCESS and cuda.cudaStreamSynchronize(stream) == INVALID_HANDLE
        assert cuda.cudaMemsetAsync(malloc(8)[1], 0, ctypes.c_size_t(8), stream) == INVALID_HANDLE
        assert cuda.cudaEventDestroy(event) == SUCCESS and cuda.cudaEventDestroy(event) == INVALID_HANDLE
    """)


@pytest.mark.parametrize("grid, block, error", [
    ((1, 1, 1), (1024, 1, 1), "SUCCESS"),
    ((0, 1, 1), (256, 1, 1), "INVALID_CONFIGURATION"),
    ((1, 1, 1), (1025, 1, 1), "INVALID_CONFIGURATION"),
    ((1, 65536, 1), (32, 1, 1), "INVALID_CONFIGURATION"),
])
def test_a_launch_of_an_impossible_shape_is_an_error(grid, block, error):
    run_script("1GiB", BARE, f"""
        class Config(ctypes.Structure):
            _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_size_t),
                        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]
        config = Config((ctypes.c_uint * 3)(*{grid}), (ctypes.c_uint * 3)(*{block}), 0, None, None, 0)
        assert cuda.cudaLaunchKernelExC(ctypes.byref(config), None, None) == {error}
    """)


def test_without_a_description_there_are_no_cards():
    """The library preloaded by hand, without the launcher."""
    script = BARE + "count = ctypes.c_int(-1); cuda.cudaGetDeviceCount(ctypes.byref(count)); print(count.value)"
    for cards, complaint in ((None, "HEADROOM_DRY_CARDS is not set"), ("16GB", "HEADROOM_DRY_CARDS: not a size")):
        env = {k: v for k, v in os.environ.items() if k != "HEADROOM_DRY_CARDS"}
        env["LD_PRELOAD"] = str(BUILD / "libheadroom_dry_cuda.so")
        if cards is not None:
            env["HEADROOM_DRY_CARDS"] = cards
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=env)
        assert done.stdout.strip() == "0" and complaint in done.stderr


# --- libtorch ---------------------------------------------------------------------------------------------------------


def test_torch_sees_the_cards_and_their_accounts_agree():
    run_script("16GiB:8.6,640MiB:75", TORCH, """
        import ctypes
        assert ctypes.CDLL(None).headroom_dry_cuda_present() == 1
        assert torch.cuda.is_available() and torch.cuda.device_count() == 2
        assert torch.cuda.get_device_capability(0) == (8, 6) and torch.cuda.get_device_capability(1) == (7, 5)
        assert torch.cuda.get_device_properties(0).total_memory == 16 * GIB
        assert "dry" in torch.cuda.get_device_name(1)
        block = take(300 * MIB, "cuda:1")
        assert torch.cuda.memory_allocated(1) == 300 * MIB
        assert torch.cuda.mem_get_info(1) == (640 * MIB - torch.cuda.memory_reserved(1), 640 * MIB)
        assert torch.cuda.mem_get_info(0) == (16 * GIB, 16 * GIB)
        del block
        torch.cuda.empty_cache()
        assert torch.cuda.mem_get_info(1) == (640 * MIB, 640 * MIB)
    """, env={"CUDA_VISIBLE_DEVICES": "1"})


def test_torch_runs_out_of_memory_at_the_cards_size_and_goes_on():
    run_script("640MiB,640MiB", TORCH, """
        whole = take(640 * MIB)
        assert fails_for_memory(lambda: take(1)) and torch.cuda.memory_stats(0)["num_ooms"] == 1
        other = take(640 * MIB, "cuda:1")
        assert torch.cuda.memory_stats(1)["num_ooms"] == 0
        del whole
        assert fails_for_memory(lambda: take(640 * MIB + 1))
        assert take(640 * MIB).numel() == 640 * MIB
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(0.5, 0)
        assert fails_for_memory(lambda: take(322 * MIB)) and take(320 * MIB).numel() == 320 * MIB
    """)


def test_copies_are_real():
    run_script("1GiB,1GiB", TORCH, """
        values = torch.randn(1000).pin_memory()
        assert values.is_pinned() and not torch.zeros(1).is_pinned()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            there = values.to("cuda:0", non_blocking=True)
            back = torch.empty_like(values).pin_memory()
            back.copy_(there.to("cuda:1"), non_blocking=True)
            done = torch.cuda.Event()
            done.record()
        done.synchronize()
        assert torch.equal(values, back)
        # The end of the process, with pinned memory alive that was used on a side stream, is a test as well.
    """)


@pytest.mark.parametrize("capability", ["7.5", "8.0", "8.9", "9.0", "10.0", "12.0"])
def test_a_frozen_encoder_takes_memory_in_proportion_to_its_rows(capability):
    run_script(f"16GiB:{capability}", TORCH, """
        from torch import nn
        torch._C._jit_set_texpr_fuser_enabled(False)
        torch._C._jit_override_can_fuse_on_gpu(False)

        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.query, self.norm = nn.Embedding(100, 64), nn.Linear(64, 64), nn.LayerNorm(64)

            def forward(self, ids, mask):
                x = self.embedding(ids)
                scores = torch.bmm(self.query(x), x.transpose(1, 2)) + (1.0 - mask)[:, None, :] * -1e9
                x = self.norm(nn.functional.gelu(torch.bmm(scores.softmax(-1), x)))
                heads = x.view(x.size(0), x.size(1), 4, 16).transpose(1, 2)
                for half in (heads, heads.half()):
                    nn.functional.scaled_dot_product_attention(half, half, half)
                return nn.functional.normalize((x * mask[:, :, None]).sum(1), dim=-1)

        inputs = lambda rows, device: (torch.zeros(rows, 128, dtype=torch.long).to(device),
                                       torch.ones(rows, 128).to(device))
        model = torch.jit.freeze(torch.jit.trace(Encoder().eval().cuda(), inputs(2, "cuda")))

        def peak(rows):
            ids, mask = inputs(rows, "cuda")
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            assert model(ids, mask).cpu().shape == (rows, 64)
            return torch.cuda.max_memory_allocated() - before

        with torch.inference_mode():
            [peak(rows) for rows in (1, 8, 64) for _ in range(2)]
            one, eight, many = peak(1), peak(8), peak(64)
        assert one > 0 and peak(1) == one and 7 * one <= eight <= 9 * one and 7 * eight <= many <= 9 * eight
    """)


@pytest.mark.parametrize("script, named", [
    ("g = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g): pass", "cudaStreamBeginCapture"),
    ("torch.zeros(1, device='cuda')", "cudaDeviceGetDefaultMemPool"),
    ("torch.zeros(1, device='cuda')", "expandable segments"),
])
def test_what_cannot_run_dry_says_so(script, named):
    backend = {"cudaDeviceGetDefaultMemPool": "backend:cudaMallocAsync", "expandable segments": "expandable_segments:True"}
    done = launch("--card", "1GiB", "--", sys.executable, "-c", "import torch\n" + script,
                  env={"PYTORCH_ALLOC_CONF": backend.get(named, "")})
    assert done.returncode == 1 and named in done.stderr and "not supported" in done.stderr


def undefined_symbols(library):
    lines = subprocess.run(["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in lines.stdout.splitlines()}


def test_every_runtime_and_blas_call_of_this_libtorch_is_answered():
    """A call that a newer libtorch adds would reach the real runtime, and fail there for want of a driver."""
    # These work in NVIDIA's own libraries without a card: registration of kernels, texts, and descriptors in memory.
    real = {"__cudaRegisterFatBinary", "__cudaRegisterFatBinaryEnd", "__cudaUnregisterFatBinary",
            "__cudaRegisterFunction", "__cudaRegisterVar", "__cudaPopCallConfiguration",
            "cudaGetErrorName", "cudaGetErrorString", "cublasLtGetVersion"}
    prefixes = ("cuda", "__cuda", "cublas")
    dry = subprocess.run(["nm", "-D", "--defined-only", str(BUILD / "libheadroom_dry_cuda.so")], capture_output=True,
                         text=True, check=True).stdout.split()
    for name in ("torch_cuda", "c10_cuda", "torch_cpu", "torch_python"):
        needed = undefined_symbols(SITE / "torch" / "lib" / f"lib{name}.so")
        missing = {s for s in needed if s.startswith(prefixes) and s not in dry and s not in real}
        missing = {s for s in missing if not (s.startswith("cublasLtMat") and s.endswith(
            ("Create", "Destroy", "SetAttribute")))}
        assert not missing, f"lib{name}.so"


# --- The launcher -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words, said", [
    ((), "--card is required"),
    (("--card",), "--card"),
    (("--card", "16GB", "--", "true"), "--card: not a size: '16GB'"),
    (("--card", "-1GiB", "--", "true"), "-1GiB"),
    (("--card", "1.5GiB", "--", "true"), "--card: not a size: '1.5GiB'"),
    (("--card", "0B", "--", "true"), "--card: a card of 0 bytes"),
    (("--card", "16GiB:8.1", "--", "true"), "--card: unknown compute capability '8.1'"),
    (("--card", "16GiB,", "--", "true"), "--card: not a size: ''"),
    (("--card", "17TiB", "--", "true"), "--card: size '17TiB' is above 16TiB"),
    (("--card", "99999999999999999999B", "--", "true"), "--card: not a size"),
    (("--card", ",".join(["1GiB"] * 65), "--", "true"), "--card: more than 64 cards"),
    (("--card", "1GiB", "--held-by-others", "1GiB,1GiB", "--", "true"), "--held-by-others: 2 sizes for 1 cards"),
    (("--card", "1GiB", "--held-by-others", "much", "--", "true"), "--held-by-others: not a size: 'much'"),
    (("--card", "1GiB", "--faults-file", "/proc/self/cmdline", "--", "true"), "--faults-file: '"),
    (("--card", "1GiB"), "the program to run is missing"),
    (("--card", "1GiB", "--"), "the program to run is missing"),
    (("--card", "1GiB", "--colour", "red", "--", "true"), "--colour"),
])
def test_wrong_usage_is_one_line_and_status_2(words, said):
    done = launch(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert said in done.stderr and done.stderr.count("\n") == 1 and done.stderr.startswith("headroom_dry: ")


def test_help_names_the_options_and_succeeds():
    done = launch("--help")
    assert done.returncode == 0 and "--card" in done.stdout and "--held-by-others" in done.stdout


def test_the_programs_own_status_and_arguments_pass_through():
    done = launch("--card", "1GiB", "--", "sh", "-c", 'echo "$1"; exit 7', "sh", "--card")
    assert done.returncode == 7 and done.stdout == "--card\n"


def test_a_program_that_is_not_there_is_named():
    done = launch("--card", "1GiB", "--", "no-such-program")
    assert done.returncode == 127 and "cannot run 'no-such-program'" in done.stderr


def test_a_verb_runs_the_headroom_beside_the_launcher(tmp_path):
    (tmp_path / "dry").mkdir()
    for name in ("headroom_dry", "libheadroom_dry_cuda.so", "dry/libcuda.so.1", "dry/libnvidia-ml.so.1"):
        (tmp_path / name).write_bytes((BUILD / name).read_bytes())
    (tmp_path / "headroom").write_text('#!/bin/sh\necho "$@" "$HEADROOM_DRY_CARDS" "$LD_PRELOAD"\n')
    for name in ("headroom_dry", "headroom"):
        (tmp_path / name).chmod(0o755)
    done = subprocess.run([str(tmp_path / "headroom_dry"), "--card", "1GiB", "--", "serve", "--device", "cuda"],
                          capture_output=True, text=True, timeout=60, env={**os.environ, "LD_PRELOAD": ""})
    assert done.stdout == f"serve --device cuda 1GiB {tmp_path}/libheadroom_dry_cuda.so\n" and done.returncode == 0
