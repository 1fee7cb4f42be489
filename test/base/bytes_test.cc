#include "base/bytes.h"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

namespace headroom {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST_CASE("a size is read in any unit and case", "[bytes]") {
  const auto [text, count] = GENERATE(table<std::string, std::int64_t>({
      {"0", 0},
      {"512", 512},
      {"512B", 512},
      {"1KiB", 1024},
      {"6MiB", 6 * 1024 * 1024},
      {"6mib", 6 * 1024 * 1024},
      {"2GiB", std::int64_t{2} << 30},
      {"1.5GiB", (std::int64_t{3} << 30) / 2},
      {".5KiB", 512},
      {"1TiB", std::int64_t{1} << 40},
      {"8388607TiB", kMost - (std::int64_t{1} << 40) + 1},
  }));
  CAPTURE(text);
  const auto bytes = ParseBytes(text);
  REQUIRE(bytes.ok());
  CHECK(bytes->count == count);
}

TEST_CASE("what is no size is refused with the text in the message", "[bytes]") {
  const std::string text = GENERATE("", " ", "B", "GiB", "-1", "+1", "1 GiB", "1GB", "1G", "1e3", "0x10", "1.2.3", ".", "nan",
                                    "inf", "one", "1MiBMiB", "8388608TiB", "99999999999999999999");
  CAPTURE(text);
  const auto bytes = ParseBytes(text);
  REQUIRE(bytes.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(bytes.status().message()), Catch::Contains("'" + text + "'"));
}

TEST_CASE("a size is printed in its largest unit", "[bytes]") {
  const auto [count, text] = GENERATE(table<std::int64_t, std::string>({
      {0, "0 B"},
      {1023, "1023 B"},
      {1024, "1.00 KiB"},
      {1536, "1.50 KiB"},
      {std::int64_t{6} << 20, "6.00 MiB"},
      {(std::int64_t{3} << 30) / 2, "1.50 GiB"},
      {std::int64_t{5} << 40, "5.00 TiB"},
      {-2048, "-2.00 KiB"},
  }));
  CHECK(ToString(Bytes{count}) == text);
}

TEST_CASE("a product of sizes is exact or an error, never wrapped", "[bytes]") {
  struct Case {
    std::vector<std::int64_t> factors;
    std::int64_t product;  // -1: refused
  };
  const auto c = GENERATE(values<Case>({
      {{}, 1},
      {{7}, 7},
      {{2, 3, 4}, 24},
      {{0, kMost}, 0},
      {{kMost, 1}, kMost},
      {{kMost, 2}, -1},
      {{std::int64_t{1} << 32, std::int64_t{1} << 31}, -1},
      {{std::int64_t{1} << 32, std::int64_t{1} << 30}, std::int64_t{1} << 62},
      {{3, -1}, -1},
      {{0, -1}, -1},
  }));
  CAPTURE(c.factors);
  const auto product = CheckedProduct(c.factors);
  if (c.product < 0) {
    CHECK(product.status().code() == absl::StatusCode::kInvalidArgument);
  } else {
    REQUIRE(product.ok());
    CHECK(*product == c.product);
  }
}

TEST_CASE("scaling rounds up and does not wrap", "[bytes]") {
  CHECK(Scale(Bytes{10}, 1.05) == Bytes{11});
  CHECK(Scale(Bytes{100}, 0.5) == Bytes{50});
  CHECK(Scale(Bytes{0}, 3) == Bytes{0});
  CHECK(Scale(Bytes{kMost}, 2) == Bytes{kMost});
}

TEST_CASE("amounts add, subtract and compare", "[bytes]") {
  Bytes sum = KiB(1) + Bytes{24};
  CHECK(sum == Bytes{1048});
  sum -= KiB(1);
  CHECK(sum == Bytes{24});
  sum += MiB(1);
  CHECK(sum > MiB(1));
  CHECK(GiB(1) - MiB(1) < GiB(1));
}

}  // namespace
}  // namespace headroom
