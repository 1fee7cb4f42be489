#include "server/abandoned_calls.h"

#include <catch2/catch.hpp>
#include <string>

namespace headroom {
namespace {

constexpr TimePoint kStart{std::chrono::hours(1)};

TEST_CASE("a burst of ten seconds' worth is forgiven, and what is beyond it is not", "[abandoned_calls]") {
  AbandonedCalls calls(5);
  for (int i = 0; i < 50; ++i) CHECK_FALSE(calls.Note("a", kStart));
  CHECK_FALSE(calls.Note("b", kStart));
  CHECK(calls.Note("a", kStart));
  // It begins anew.
  CHECK_FALSE(calls.Note("a", kStart));
}

TEST_CASE("who gives up calls at the allowed pace may do so for ever", "[abandoned_calls]") {
  AbandonedCalls calls(5);
  for (int i = 0; i < 1000; ++i) CHECK_FALSE(calls.Note("a", kStart + i * std::chrono::milliseconds(200)));
}

TEST_CASE("without a limit, and with very many connections, nobody is closed", "[abandoned_calls]") {
  AbandonedCalls unlimited(0);
  for (int i = 0; i < 1000; ++i) CHECK_FALSE(unlimited.Note("a", kStart));
  AbandonedCalls calls(5);
  for (int i = 0; i < 30'000; ++i) CHECK_FALSE(calls.Note(std::to_string(i), kStart));
}

}  // namespace
}  // namespace headroom
