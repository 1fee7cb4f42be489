// What a dry card is: a size, a compute capability, and what other processes hold of it.
#ifndef HEADROOM_RUNTIME_DRY_CUDA_CARD_H_
#define HEADROOM_RUNTIME_DRY_CUDA_CARD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::dry_cuda {

inline constexpr char kCardsVariable[] = "HEADROOM_DRY_CARDS";
inline constexpr char kHeldByOthersVariable[] = "HEADROOM_DRY_HELD_BY_OTHERS";

// Limits of a launch that are the same for every capability from 7.5 on.
inline constexpr int kThreadsPerBlock = 1024;
inline constexpr int kBlockDepth = 64;
inline constexpr int kGridWidth = 2147483647;
inline constexpr int kGridHeightAndDepth = 65535;

// The published figures of one compute capability on which the choice and the shape of kernels depend. The number of
// multiprocessors is that of a common card of the capability; grid sizes, and with them some scratch buffers, follow
// it.
struct Silicon {
  int major;
  int minor;
  int multiprocessors;
  int threads_per_multiprocessor;
  int blocks_per_multiprocessor;
  std::size_t shared_bytes_per_multiprocessor;
  std::size_t shared_bytes_per_block_optin;
  std::size_t l2_bytes;
};

struct Card {
  std::uint64_t total_bytes = 0;
  std::uint64_t held_by_others = 0;
  const Silicon* silicon = nullptr;  // Points into a constant table.
};

// Reads "512B", "640MiB", "16GiB". Only binary units: a card sold as "16 GB" has 16 GiB less what the driver keeps, and
// a guess would be wrong by gigabytes. On failure returns nothing and says why in `problem`.
std::optional<std::uint64_t> ParseSize(std::string_view text, std::string& problem);

// Reads "SIZE[:CAPABILITY],..." such as "16GiB:8.0,640MiB:75"; the capability defaults to 8.0.
std::optional<std::vector<Card>> ParseCards(std::string_view text, std::string& problem);

// Reads "SIZE,..." into the cards in their order; cards without a size keep 0. An empty text is allowed.
bool ParseHeldByOthers(std::string_view text, std::vector<Card>& cards, std::string& problem);

}  // namespace headroom::dry_cuda

#endif  // HEADROOM_RUNTIME_DRY_CUDA_CARD_H_
