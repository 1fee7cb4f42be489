// Damages messages field by field. Knows how fields are put into bytes and nothing of what they mean, so that it fits every message
// and needs no library.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace headroom {

// The same seed and the same calls give the same messages.
class WireMutator {
 public:
  explicit WireMutator(std::uint64_t seed) : random_(seed) {}

  // `message` with one to four changes: bits flipped, cut off, fields doubled, dropped, reordered, renumbered, of another wire
  // type, their lengths a little or far off, numbers at their limits, NaN and infinities in what may be floats, contents longer or
  // shorter, fields of `other` put in, nested, wrapped into groups.
  std::string Mutate(std::string_view message, std::string_view other);

  // The head of one and the tail of the other, cut between fields where both are messages.
  std::string Splice(std::string_view message, std::string_view other);

 private:
  struct Field;
  class Tree;

  std::size_t Below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }
  std::uint64_t Number();

  std::string ChangeBytes(std::string message);
  void ChangeField(Field& field, std::string_view other);
  void ChangeContent(Field& field);

  std::mt19937_64 random_;
};

}  // namespace headroom
