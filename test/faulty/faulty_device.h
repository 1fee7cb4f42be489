// A device that does what another does, but for the faults that it is told to make. For tests; never shipped.
#pragma once

#include <absl/status/status.h>

#include <atomic>
#include <memory>
#include <string>

#include "runtime/device.h"

namespace headroom {

inline constexpr const char* kFaultNames =
    "delay_ms, throw_on_id, oom_over_rows, device_lost_after, memory_query_fails_after, oom_at_allocation";

// Faults act from Arm() on, so that load, warm-up and calibration run clean. Set before that.
class Faults {
 public:
  // Reads one of kFaultNames with a whole number, as "delay_ms=300". INVALID_ARGUMENT for anything else.
  //   delay_ms: each run takes so much longer        throw_on_id: a run with this token fails
  //   oom_over_rows: a run of more rows has no memory
  //   oom_at_allocation: on the CPU, of all tensor allocations the N-th, the 2N-th, … are refused
  //   device_lost_after, memory_query_fails_after: so many runs or queries succeed, no later one does
  absl::Status Read(const std::string& text);
  void Arm() { armed_ = true; }

  bool armed() const { return armed_; }
  std::int64_t delay_ms() const { return delay_ms_; }
  std::int64_t throw_on_id() const { return throw_on_id_; }
  std::int64_t oom_over_rows() const { return oom_over_rows_; }
  std::int64_t oom_at_allocation() const { return oom_at_allocation_; }
  std::int64_t device_lost_after() const { return device_lost_after_; }
  std::int64_t memory_query_fails_after() const { return memory_query_fails_after_; }

 private:
  std::atomic<bool> armed_ = false;
  std::int64_t delay_ms_ = 0;
  std::int64_t throw_on_id_ = -1;
  std::int64_t oom_over_rows_ = 0;
  std::int64_t oom_at_allocation_ = 0;
  std::int64_t device_lost_after_ = -1;
  std::int64_t memory_query_fails_after_ = -1;
};

// `device` with `faults`, which outlive it.
std::unique_ptr<Device> MakeFaultyDevice(std::unique_ptr<Device> device, const Faults& faults);

}  // namespace headroom
