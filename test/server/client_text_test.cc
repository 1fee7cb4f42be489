#include "server/client_text.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace headroom {
namespace {

TEST_CASE("a client's words are quoted so that they stay in their place", "[client_text]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "''"},
      {"input_ids", "'input_ids'"},
      {"it's", R"('it\'s')"},
      {R"(a"\)", R"('a\"\\')"},
      {"one\ntwo\r\t", R"('one\ntwo\r\t')"},
      {std::string("\0\x1b[31m", 6), R"('\x00\x1b[31m')"},
      {"\xFF", R"('\xff')"},
      {std::string(64, 'x'), "'" + std::string(64, 'x') + "'"},
      {std::string(65, 'x'), "'" + std::string(64, 'x') + "…'"},
      {std::string(1'000'000, 'x'), "'" + std::string(64, 'x') + "…'"},
  };
  for (const auto& [text, quoted] : cases) CHECK(Quoted(text) == quoted);
}

TEST_CASE("what is quoted is never longer than a few lines", "[client_text]") {
  CHECK(Quoted(std::string(100'000, '\x01')).size() < 300);
}

}  // namespace
}  // namespace headroom
