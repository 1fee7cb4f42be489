// The faults that a dry card makes when it is told to: memory refused, memory that others take, a context that is lost.
#ifndef HEADROOM_RUNTIME_DRY_CUDA_FAULTS_H_
#define HEADROOM_RUNTIME_DRY_CUDA_FAULTS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "card.h"

namespace headroom::dry_cuda {

inline constexpr char kFaultsFileVariable[] = "HEADROOM_DRY_FAULTS_FILE";

// What dry_cuda.h describes. Counts are of calls from the moment on at which the plan was made.
struct FaultPlan {
  std::uint64_t malloc_fails_at = 0;     // 0: none does
  std::uint64_t malloc_fails_every = 0;  // 0: none does
  std::uint64_t malloc_failures = 1;     // how many in a row, each time
  std::optional<std::uint64_t> memory_query_fails_after;
  std::optional<std::uint64_t> lost_after_launches;
  std::chrono::milliseconds synchronize_takes{0};
  std::vector<std::uint64_t> held_by_others;  // of each card
};

// Reads "NAME=VALUE ..." for these cards, which say what others hold where the text does not. On failure returns nothing and says
// why in `problem`.
std::optional<FaultPlan> ParseFaults(std::string_view text, std::vector<Card> cards, std::string& problem);

// A file whose content is read again whenever it has changed. Not synchronized.
class WatchedFile {
 public:
  explicit WatchedFile(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }

  // The content where it is another one than at the last call. A file that cannot be read has none.
  std::optional<std::string> ReadIfChanged();

 private:
  struct Version {
    std::uint64_t inode = 0;
    std::int64_t size = 0;
    std::int64_t seconds = 0;
    std::int64_t nanoseconds = 0;
    friend bool operator==(const Version&, const Version&) = default;
  };

  const std::string path_;
  Version seen_;
};

// Counts calls and tells which of them fail. Thread-safe.
class Faults {
 public:
  // Counts begin anew. A device that is lost stays so.
  void Follow(const FaultPlan& plan);

  // Count a call each, and tell whether it fails.
  bool MallocFails();
  bool MemoryQueryFails();
  // Counts a launch; the one after those that the plan allows is the device's last call.
  void Launch(int device);

  bool IsLost(int device) const { return lost_[static_cast<std::size_t>(device)]; }
  std::chrono::milliseconds synchronize_takes() const;

 private:
  static constexpr std::size_t kDevices = 64;  // as many as there may be cards

  mutable std::mutex mu_;
  FaultPlan plan_;  // Guarded by mu_, as are the counts.
  std::uint64_t mallocs_ = 0;
  std::uint64_t memory_queries_ = 0;
  std::uint64_t launches_ = 0;
  std::array<std::atomic<bool>, kDevices> lost_{};
};

}  // namespace headroom::dry_cuda

#endif  // HEADROOM_RUNTIME_DRY_CUDA_FAULTS_H_
