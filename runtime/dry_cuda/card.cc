#include "card.h"

#include <array>
#include <charconv>
#include <utility>

namespace headroom::dry_cuda {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

// libtorch counts devices in a signed byte; a machine with more than this many cards is a slip of the keyboard.
constexpr std::size_t kMostCards = 64;

// Stays far inside the 47 bits of user addresses, so that the arithmetic on sums cannot overflow.
constexpr std::uint64_t kLargestSize = std::uint64_t{1} << 44;

// Compute capabilities, as in the CUDA programming guide's table of features per capability; multiprocessors and L2 of
// T4, A100, A10G, L4, H100 SXM, B200 and RTX PRO 6000.
constexpr std::array<Silicon, 7> kSilicon = {{
    {7, 5, 40, 1024, 16, 64 * kKiB, 64 * kKiB, 4 * kMiB},
    {8, 0, 108, 2048, 32, 164 * kKiB, 163 * kKiB, 40 * kMiB},
    {8, 6, 80, 1536, 16, 100 * kKiB, 99 * kKiB, 6 * kMiB},
    {8, 9, 58, 1536, 24, 100 * kKiB, 99 * kKiB, 48 * kMiB},
    {9, 0, 132, 2048, 32, 228 * kKiB, 227 * kKiB, 50 * kMiB},
    {10, 0, 148, 2048, 32, 228 * kKiB, 227 * kKiB, 126 * kMiB},
    {12, 0, 188, 1536, 24, 100 * kKiB, 99 * kKiB, 128 * kMiB},
}};

std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  quoted.append(text).push_back('\'');
  return quoted;
}

std::vector<std::string_view> SplitAtCommas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// Takes "8.0" as well as "80", as both ways of writing are usual.
const Silicon* FindSilicon(std::string_view text, std::string& problem) {
  std::string known;
  for (const Silicon& silicon : kSilicon) {
    const std::string major = std::to_string(silicon.major);
    const std::string minor = std::to_string(silicon.minor);
    if (text == major + "." + minor || text == major + minor) return &silicon;
    known += (known.empty() ? "" : ", ") + major + "." + minor;
  }
  problem = "unknown compute capability " + Quoted(text) + ", known are " + known;
  return nullptr;
}

}  // namespace

std::optional<std::uint64_t> ParseSize(std::string_view text, std::string& problem) {
  constexpr std::array<std::pair<std::string_view, int>, 5> kUnits = {
      {{"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};
  std::uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const auto& [name, shift] : kUnits) {
    if (error != std::errc() || unit != name) continue;
    if (count > kLargestSize >> shift) {
      problem = "size " + Quoted(text) + " is above 16TiB";
      return std::nullopt;
    }
    return count << shift;
  }
  problem = "not a size: " + Quoted(text) + ", write a whole number and B, KiB, MiB, GiB or TiB, such as 640MiB";
  return std::nullopt;
}

std::optional<std::vector<Card>> ParseCards(std::string_view text, std::string& problem) {
  std::vector<Card> cards;
  for (const std::string_view part : SplitAtCommas(text)) {
    const std::size_t colon = part.find(':');
    const std::optional<std::uint64_t> size = ParseSize(part.substr(0, colon), problem);
    if (!size.has_value()) return std::nullopt;
    if (*size == 0) {
      problem = "a card of 0 bytes: " + Quoted(part);
      return std::nullopt;
    }
    const Silicon* silicon = FindSilicon(colon == std::string_view::npos ? "8.0" : part.substr(colon + 1), problem);
    if (silicon == nullptr) return std::nullopt;
    cards.push_back({.total_bytes = *size, .held_by_others = 0, .silicon = silicon});
  }
  if (cards.size() > kMostCards) {
    problem = "more than " + std::to_string(kMostCards) + " cards: " + std::to_string(cards.size());
    return std::nullopt;
  }
  return cards;
}

bool ParseHeldByOthers(std::string_view text, std::vector<Card>& cards, std::string& problem) {
  if (text.empty()) return true;
  const std::vector<std::string_view> parts = SplitAtCommas(text);
  if (parts.size() > cards.size()) {
    problem = std::to_string(parts.size()) + " sizes for " + std::to_string(cards.size()) + " cards";
    return false;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::optional<std::uint64_t> size = ParseSize(parts[i], problem);
    if (!size.has_value()) return false;
    cards[i].held_by_others = *size;
  }
  return true;
}

}  // namespace headroom::dry_cuda
