#include "test/fuzz/wire_mutator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

namespace headroom {
namespace {

enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kDelimited = 2, kStartGroup = 3, kEndGroup = 4, kFixed32 = 5 };

constexpr int kDeepest = 6;             // of what is looked into
constexpr std::uint64_t kLargest = 64;  // field number of what is taken for a message
constexpr std::size_t kLongest = 8192;  // of a message that may still grow

void PutVarint(std::string& to, std::uint64_t value, std::size_t padding = 0) {
  for (; value >= 0x80 || padding > 0; value >>= 7) {
    if (value < 0x80) --padding;
    to.push_back(static_cast<char>(value | 0x80));
  }
  to.push_back(static_cast<char>(value));
}

std::optional<std::uint64_t> TakeVarint(std::string_view& from) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64 && !from.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(from.front());
    from.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

}  // namespace

struct WireMutator::Field {
  std::uint64_t number = 0;
  std::uint32_t type = kVarint;
  std::uint64_t value = 0;  // of a varint
  std::string content;      // of all else; where it looks like a message, `inside` stands for it
  std::vector<Field> inside;
  std::size_t padding = 0;      // bytes that the tag is longer than need be
  std::int64_t length_off = 0;  // added to the length that is told
  int wrapped = 0;              // groups around it

  void Put(std::string& to) const {
    for (int i = 0; i < wrapped; ++i) PutVarint(to, number << 3 | kStartGroup);
    PutVarint(to, number << 3 | type, padding);
    if (type == kVarint) {
      PutVarint(to, value);
    } else {
      std::string bytes = content;
      for (const Field& field : inside) field.Put(bytes);
      if (type == kDelimited) PutVarint(to, bytes.size() + static_cast<std::uint64_t>(length_off));
      to += bytes;
    }
    for (int i = 0; i < wrapped; ++i) PutVarint(to, number << 3 | kEndGroup);
  }
};

// A message as its fields.
class WireMutator::Tree {
 public:
  static std::optional<std::vector<Field>> Of(std::string_view bytes, int depth = 0) {
    std::vector<Field> fields;
    while (!bytes.empty()) {
      const auto tag = TakeVarint(bytes);
      if (!tag || *tag >> 3 == 0 || *tag >> 3 > kLargest) return std::nullopt;
      Field field;
      field.number = *tag >> 3;
      field.type = static_cast<std::uint32_t>(*tag & 7);
      if (field.type == kVarint) {
        const auto value = TakeVarint(bytes);
        if (!value) return std::nullopt;
        field.value = *value;
      } else if (!TakeContent(bytes, field, depth)) {
        return std::nullopt;
      }
      fields.push_back(std::move(field));
    }
    return fields;
  }

  static std::string BytesOf(const std::vector<Field>& fields) {
    std::string bytes;
    for (const Field& field : fields) field.Put(bytes);
    return bytes;
  }

  // Every list of fields, the outermost first.
  static void Lists(std::vector<Field>& fields, std::vector<std::vector<Field>*>& lists) {
    lists.push_back(&fields);
    for (Field& field : fields) {
      if (!field.inside.empty()) Lists(field.inside, lists);
    }
  }

 private:
  static bool TakeContent(std::string_view& bytes, Field& field, int depth) {
    std::optional<std::uint64_t> length;
    if (field.type == kFixed64) length = 8;
    if (field.type == kFixed32) length = 4;
    if (field.type == kDelimited) length = TakeVarint(bytes);
    if (!length || *length > bytes.size()) return false;
    const std::string_view content = bytes.substr(0, *length);
    bytes.remove_prefix(*length);
    if (field.type == kDelimited && depth < kDeepest && content.size() > 1) {
      if (auto inside = Of(content, depth + 1)) {
        field.inside = *std::move(inside);
        return true;
      }
    }
    field.content = content;
    return true;
  }
};

std::uint64_t WireMutator::Number() {
  static constexpr std::array<std::uint64_t, 24> kNumbers = {0,
                                                             1,
                                                             2,
                                                             3,
                                                             7,
                                                             8,
                                                             31,
                                                             32,
                                                             33,
                                                             64,
                                                             100,
                                                             127,
                                                             128,
                                                             4095,
                                                             4096,
                                                             4097,
                                                             (1U << 31) - 1,
                                                             1U << 31,
                                                             0xffffffff,
                                                             1ULL << 32,
                                                             1ULL << 60,
                                                             1ULL << 63,
                                                             (1ULL << 63) - 1,
                                                             ~0ULL};
  const std::size_t chosen = Below(kNumbers.size() + 2);
  return chosen < kNumbers.size() ? kNumbers[chosen] : random_() >> Below(64);
}

std::string WireMutator::ChangeBytes(std::string message) {
  if (message.empty()) return std::string(1 + Below(4), static_cast<char>(Below(256)));
  const std::size_t at = Below(message.size());
  switch (Below(6)) {
    case 0: message[at] = static_cast<char>(message[at] ^ (1 << Below(8))); break;
    case 1: message[at] = static_cast<char>(Below(256)); break;
    case 2: message.resize(at); break;
    case 3: message.erase(at, 1 + Below(8)); break;
    case 4: message.insert(at, message.substr(Below(message.size()), 1 + Below(32))); break;
    case 5: message.insert(at, 1 + Below(8), static_cast<char>(Below(256))); break;
  }
  return message;
}

void WireMutator::ChangeContent(Field& field) {
  if (!field.inside.empty()) {
    field.content = Tree::BytesOf(field.inside);
    field.inside.clear();
  }
  std::string& content = field.content;
  const std::size_t width = Below(2) == 0 ? 4 : 8;
  switch (Below(6)) {
    case 0: content.resize(content.size() - std::min<std::size_t>(content.size(), Below(2) == 0 ? 1 : width)); break;
    case 1: content.append(Below(2) == 0 ? 1 : width, static_cast<char>(Below(256))); break;
    case 2: content.clear(); break;
    case 3: content = std::string(Below(3) == 0 ? 2000 : 130, Below(2) == 0 ? 'a' : '\xff'); break;
    default: {
      if (content.size() < width) break;
      std::array<char, 8> element{};
      if (Below(2) == 0) {
        const std::uint64_t number = Number();
        std::memcpy(element.data(), &number, sizeof number);
      } else if (width == 4) {
        static constexpr std::array<float, 5> kFloats = {
            std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
            -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::denorm_min(), -1e38F};
        std::memcpy(element.data(), &kFloats[Below(kFloats.size())], sizeof(float));
      } else {
        static constexpr std::array<double, 3> kDoubles = {std::numeric_limits<double>::quiet_NaN(),
                                                           std::numeric_limits<double>::infinity(), 1e308};
        std::memcpy(element.data(), &kDoubles[Below(kDoubles.size())], sizeof(double));
      }
      content.replace(Below(content.size() / width) * width, width, element.data(), width);
    }
  }
}

void WireMutator::ChangeField(Field& field, std::string_view other) {
  switch (Below(9)) {
    case 0:
    case 1:
      if (field.type == kVarint) {
        field.value = Number();
        return;
      }
      return ChangeContent(field);
    case 2: field.number = Below(4) == 0 ? (1U << 29) - 1 : 1 + Below(12); return;
    case 3: field.type = static_cast<std::uint32_t>(Below(8)); return;
    case 4: field.length_off = Below(3) == 0 ? static_cast<std::int64_t>(Number()) : (Below(2) == 0 ? 1 : -1); return;
    case 5: field.padding = 1 + Below(10); return;
    case 6: field.wrapped = static_cast<int>(1 + Below(Below(8) == 0 ? 200 : 2)); return;
    case 7:
      // A number by itself as a list of one, and a list by itself as a number.
      if (field.type == kVarint) {
        PutVarint(field.content, field.value);
        field.type = kDelimited;
      } else if (field.type == kDelimited) {
        field.type = kVarint;
        field.value = Number();
      }
      return;
    case 8:
      if (auto fields = Tree::Of(other); fields && !fields->empty()) {
        field.type = kDelimited;
        field.content.clear();
        field.inside = {(*fields)[Below(fields->size())]};
      }
      return;
  }
}

std::string WireMutator::Mutate(std::string_view message, std::string_view other) {
  std::string bytes(message);
  for (std::size_t changes = 1 + Below(4); changes > 0; --changes) {
    auto fields = Tree::Of(bytes);
    if (!fields || fields->empty() || Below(5) == 0) {
      bytes = ChangeBytes(std::move(bytes));
      continue;
    }
    std::vector<std::vector<Field>*> lists;
    Tree::Lists(*fields, lists);
    std::vector<Field>& list = *lists[Below(lists.size())];
    const std::size_t at = Below(list.size());
    switch (Below(8)) {
      case 0: {
        const Field doubled = list[at];
        const std::size_t times = Below(16) == 0 ? 300 : 1;
        const bool small = bytes.size() < kLongest / 4;
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(Below(list.size() + 1)), small ? times : 1, doubled);
        break;
      }
      case 1: list.erase(list.begin() + static_cast<std::ptrdiff_t>(at)); break;
      case 2: std::swap(list[at], list[Below(list.size())]); break;
      case 3:
        if (const auto donor = Tree::Of(other); donor && !donor->empty()) list.push_back((*donor)[Below(donor->size())]);
        break;
      default: ChangeField(list[at], other);
    }
    bytes = Tree::BytesOf(*fields);
  }
  return bytes;
}

std::string WireMutator::Splice(std::string_view message, std::string_view other) {
  auto head = Tree::Of(message);
  auto tail = Tree::Of(other);
  if (!head || !tail) {
    return std::string(message.substr(0, Below(message.size() + 1))) + std::string(other.substr(Below(other.size() + 1)));
  }
  head->resize(Below(head->size() + 1));
  const auto from = tail->begin() + static_cast<std::ptrdiff_t>(Below(tail->size() + 1));
  head->insert(head->end(), from, tail->end());
  return Tree::BytesOf(*head);
}

}  // namespace headroom
