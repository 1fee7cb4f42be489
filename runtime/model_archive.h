// Is a model file whole? A TorchScript module is a zip archive, and libtorch reads it trustingly: it skips the archive's checksums,
// so that a flipped bit in a weight is served, and one in its structure can end the process. This looks before libtorch does.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace headroom {

// A record that is stored compressed, as code is: whoever unpacks it is to compare.
struct PackedRecord {
  std::string name;
  Bytes size{0};  // unpacked
  std::uint32_t crc = 0;
};

// CRC-32 as zip archives have it, of `data` after what `before` is the CRC of.
std::uint32_t Crc32(std::span<const unsigned char> data, std::uint32_t before = 0);

// More than any module's code takes; unpacking allocates it.
inline constexpr Bytes kLargestPackedRecord = MiB(256);

// Reads the whole file in `descriptor`: its records lie one after the other from the first byte on, each with its descriptor, are
// listed once and alike in the directory that ends the file, and those that are stored plainly, as weights are, have the checksum
// that is written beside them. Every byte that has a meaning is so accounted for.
//
// Returns the records that are stored compressed. INVALID_ARGUMENT otherwise: "the model file is …", naming the record and no path.
// Leaves the descriptor's position alone.
absl::StatusOr<std::vector<PackedRecord>> CheckModelArchive(int descriptor);

}  // namespace headroom
