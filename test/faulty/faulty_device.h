// A device that does what another does, but for the faults that it is told to make. For tests; never shipped.
#pragma once

#include <absl/status/status.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/device.h"

namespace headroom {

inline constexpr const char* kFaultNames =
    "delay_ms, throw_on_id, throw_every, oom_over_rows, oom_every, oom_at_allocation, free_bytes, estimate_percent, leak_bytes, "
    "hang_after, "
    "device_lost_after, memory_query_fails_after";

// Faults act from Arm() on, so that load, warm-up and calibration run clean; those of memory's figures from the start. Set before
// that.
class Faults {
 public:
  // Reads one of kFaultNames with a whole number, as "delay_ms=300". INVALID_ARGUMENT for anything else.
  //   delay_ms: each run takes so much longer        throw_on_id: a run with this token fails
  //   throw_every, oom_every: runs N, 2N, … do       oom_over_rows: a run of more rows has no memory
  //   oom_at_allocation: on the CPU, of all tensor allocations the N-th, the 2N-th, … are refused
  //   free_bytes: the device says that so much is free, from the start; "N,M@500" says M from 500 ms after Arm() on
  //   estimate_percent: calibration measures so much of what a run takes
  //   leak_bytes: each run leaks so many bytes of the host's memory
  //   hang_after: run N never returns
  //   device_lost_after, memory_query_fails_after: so many runs or queries succeed, no later one does
  absl::Status Read(const std::string& text);
  void Arm();

  bool armed() const { return armed_; }
  std::int64_t delay_ms() const { return delay_ms_; }
  std::int64_t throw_on_id() const { return throw_on_id_; }
  std::int64_t throw_every() const { return throw_every_; }
  std::int64_t oom_over_rows() const { return oom_over_rows_; }
  std::int64_t oom_every() const { return oom_every_; }
  std::int64_t estimate_percent() const { return estimate_percent_; }
  // Nothing where the device's own figure stands.
  std::optional<Bytes> free_bytes() const;
  std::int64_t oom_at_allocation() const { return oom_at_allocation_; }
  std::int64_t device_lost_after() const { return device_lost_after_; }
  std::int64_t leak_bytes() const { return leak_bytes_; }
  std::int64_t hang_after() const { return hang_after_; }
  std::int64_t memory_query_fails_after() const { return memory_query_fails_after_; }

 private:
  absl::Status ReadFreeBytes(const std::string& text);

  struct FreeFrom {
    Duration after_arming{0};
    Bytes bytes{0};
  };

  std::atomic<bool> armed_ = false;
  TimePoint armed_at_{};  // written before armed_
  std::int64_t delay_ms_ = 0;
  std::int64_t throw_on_id_ = -1;
  std::int64_t throw_every_ = 0;
  std::int64_t oom_over_rows_ = 0;
  std::int64_t oom_every_ = 0;
  std::int64_t estimate_percent_ = 100;
  std::vector<FreeFrom> free_bytes_;  // ascending in time
  std::int64_t oom_at_allocation_ = 0;
  std::int64_t device_lost_after_ = -1;
  std::int64_t leak_bytes_ = 0;
  std::int64_t hang_after_ = 0;
  std::int64_t memory_query_fails_after_ = -1;
};

// `device` with `faults`, which outlive it.
std::unique_ptr<Device> MakeFaultyDevice(std::unique_ptr<Device> device, const Faults& faults);

}  // namespace headroom
