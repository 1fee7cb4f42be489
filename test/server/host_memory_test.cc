#include "server/host_memory.h"

#include <sched.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/server/scratch_folder.h"

namespace headroom {
namespace {

using Files = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kMemInfo =
    "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\nBuffers: 1 kB\n";
constexpr std::int64_t kAvailable = 8'000'000LL * 1024;

absl::StatusOr<Bytes> AvailableIn(const Files& files) {
  const ScratchFolder root;
  for (const auto& [name, text] : files) root.Write(name, text);
  return AvailableHostMemory(root.path());
}

TEST_CASE("what may be taken is the container's limit less its use, or what the machine has", "[host_memory]") {
  struct Case {
    std::string what;
    Files files;
    std::int64_t available;
  };
  const std::string v2 = "sys/fs/cgroup/";
  const std::string v1 = "sys/fs/cgroup/memory/";
  const std::vector<Case> cases = {
      {"no control group", {{"proc/meminfo", kMemInfo}}, kAvailable},
      {"version 2, limited",
       {{"proc/meminfo", kMemInfo}, {v2 + "memory.max", "1000000000\n"}, {v2 + "memory.current", "400000000\n"}},
       600'000'000},
      {"version 2, not limited",
       {{"proc/meminfo", kMemInfo}, {v2 + "memory.max", "max\n"}, {v2 + "memory.current", "400000000\n"}},
       kAvailable},
      {"version 2, limited beyond what the machine has",
       {{"proc/meminfo", kMemInfo}, {v2 + "memory.max", "99000000000\n"}, {v2 + "memory.current", "0\n"}},
       kAvailable},
      {"version 2, used to the limit",
       {{"proc/meminfo", kMemInfo}, {v2 + "memory.max", "1000\n"}, {v2 + "memory.current", "1001\n"}},
       0},
      {"version 2, its use is not told", {{"proc/meminfo", kMemInfo}, {v2 + "memory.max", "1000\n"}}, kAvailable},
      {"version 1, limited",
       {{"proc/meminfo", kMemInfo}, {v1 + "memory.limit_in_bytes", "3000\n"}, {v1 + "memory.usage_in_bytes", "1000\n"}},
       2000},
      {"version 1, not limited",
       {{"proc/meminfo", kMemInfo},
        {v1 + "memory.limit_in_bytes", "9223372036854771712\n"},
        {v1 + "memory.usage_in_bytes", "1000\n"}},
       kAvailable},
      {"version 2 without a limit beside version 1 with one",
       {{"proc/meminfo", kMemInfo},
        {v2 + "memory.max", "max\n"},
        {v2 + "memory.current", "1\n"},
        {v1 + "memory.limit_in_bytes", "3000\n"},
        {v1 + "memory.usage_in_bytes", "1000\n"}},
       2000},
      {"a container that hides the machine", {{v2 + "memory.max", "3000\n"}, {v2 + "memory.current", "1000\n"}}, 2000},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    const auto available = AvailableIn(c.files);
    REQUIRE(available.ok());
    CHECK(available->count == c.available);
  }
}

TEST_CASE("where nothing can be read no amount is made up", "[host_memory]") {
  const std::vector<Files> cases = {{},
                                    {{"proc/meminfo", "MemTotal: 16000000 kB\n"}},
                                    {{"proc/meminfo", "MemAvailable: lots\n"}},
                                    {{"sys/fs/cgroup/memory.max", "max\n"}, {"sys/fs/cgroup/memory.current", "1\n"}}};
  for (const Files& files : cases) CHECK(AvailableIn(files).status().code() == absl::StatusCode::kInternal);
}

TEST_CASE("this machine has memory", "[host_memory]") { CHECK(AvailableHostMemory().value() > MiB(1)); }

TEST_CASE("the memory of the process is what is resident, and what of it is its own", "[host_memory]") {
  const ScratchFolder root;
  root.Write("proc/self/statm", "5000 3000 1000 10 0 400 0\n");
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const ProcessMemory memory = ReadProcessMemory(root.path()).value();
  CHECK(memory.resident.count == 3000 * page);
  CHECK(memory.own.count == 2000 * page);

  root.Write("proc/self/statm", "5000 3000");
  CHECK(ReadProcessMemory(root.path()).status().code() == absl::StatusCode::kInternal);
  CHECK(ReadProcessMemory(root.PathOf("nowhere")).status().code() == absl::StatusCode::kInternal);
}

TEST_CASE("memory that this process touches becomes its own", "[host_memory]") {
  const Bytes before = ReadProcessMemory().value().own;
  const std::vector<char> touched(64 << 20, 'x');
  const Bytes after = ReadProcessMemory().value().own;
  CHECK(after - before > MiB(56));
  CHECK(touched.back() == 'x');
}

TEST_CASE("processors are those that the process may run on", "[host_memory]") {
  CHECK(UsableProcessors() >= 1);
  int processors = 0;
  // The affinity is a thread's own: the others keep theirs.
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0) processors = UsableProcessors();
  }).join();
  CHECK(processors == 1);
}

}  // namespace
}  // namespace headroom
