#include "server/host_memory.h"

#include <malloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace headroom {
namespace {

// The number that `file` holds; nullopt where it holds a word ("max") or is not there.
std::optional<std::int64_t> NumberIn(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::int64_t number = 0;
  if (in >> number && number >= 0) return number;
  return std::nullopt;
}

std::optional<std::int64_t> MemAvailable(const std::filesystem::path& root) {
  std::ifstream in(root / "proc/meminfo");
  std::string word;
  std::int64_t kib = 0;
  while (in >> word) {
    if (word == "MemAvailable:" && in >> kib) return kib << 10;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Bytes> AvailableHostMemory(const std::filesystem::path& root) {
  std::optional<std::int64_t> available = MemAvailable(root);
  // Inside a container its own group is mounted as the root of the hierarchy.
  const std::filesystem::path groups = root / "sys/fs/cgroup";
  for (const auto& [limit_file, usage_file] :
       {std::pair{"memory.max", "memory.current"}, {"memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"}}) {
    const std::optional<std::int64_t> limit = NumberIn(groups / limit_file);
    const std::optional<std::int64_t> used = NumberIn(groups / usage_file);
    if (!limit || !used) continue;
    const std::int64_t left = std::max<std::int64_t>(0, *limit - *used);
    // Version 1 says "no limit" by a number larger than any machine.
    available = available ? std::min(*available, left) : left;
    break;
  }
  if (!available) return absl::InternalError("neither the container's memory limit nor the machine's memory can be read");
  return Bytes{*available};
}

absl::StatusOr<ProcessMemory> ReadProcessMemory(const std::filesystem::path& root) {
  std::ifstream in(root / "proc/self/statm");
  std::int64_t size = 0;
  std::int64_t resident = 0;
  std::int64_t of_files = 0;
  if (!(in >> size >> resident >> of_files)) return absl::InternalError("the memory of this process cannot be read");
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  return ProcessMemory{{resident * page}, {std::max<std::int64_t>(0, resident - of_files) * page}};
}

void BoundMallocArenas() { mallopt(M_ARENA_MAX, std::max(2, UsableProcessors())); }

Bytes DefaultHostLimit(bool shares_device_memory, Bytes available) {
  constexpr Bytes kLeast = MiB(64);
  const std::int64_t parts = shares_device_memory ? 10 : 4;
  return std::max(kLeast, Bytes{available.count / parts});
}

int UsableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace headroom
