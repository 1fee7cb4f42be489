// Makes the program's large allocations fail, as where the host's memory has run out. Replaces operator new in the program that it
// is linked into; memory that is not asked of it (malloc's, gRPC's) is as ever.
#pragma once

#include <absl/status/status.h>

#include <optional>
#include <string>

namespace headroom {

inline constexpr const char* kHostAllocationFaultName = "host_alloc_fails_over";

// Reads "host_alloc_fails_over=BYTES": once armed, every allocation of more bytes throws std::bad_alloc. Nothing where `text` is
// another fault; INVALID_ARGUMENT where its number is none.
std::optional<absl::Status> ReadHostAllocationFault(const std::string& text);
void ArmHostAllocationFault();

}  // namespace headroom
