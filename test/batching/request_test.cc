#include "batching/request.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "test/fakes/toy_request.h"

namespace headroom {
namespace {

std::shared_ptr<const ModelSpec> Spec(std::vector<OutputSpec> outputs = {{.name = "row", .type = DataType::kFp32, .dims = {2}}},
                                      std::vector<Tier> tiers = {}) {
  ModelSpec spec = ToySpec();
  spec.outputs = std::move(outputs);
  spec.sequence.tiers = std::move(tiers);
  return std::make_shared<const ModelSpec>(std::move(spec));
}

ToyRequest Make(const std::shared_ptr<const ModelSpec>& spec, const std::vector<Ids>& rows, ToyRequestOptions options = {}) {
  return MakeToyRequest(spec, BucketLadder(*spec, DeviceKind::kCpu), rows, options);
}

void WriteOutput(Request& request, std::size_t row, std::initializer_list<float> numbers) {
  std::memcpy(request.OutputRow(0, row), std::data(numbers), numbers.size() * sizeof(float));
}

TEST_CASE("rows that finish out of order are answered in the order they came", "[request]") {
  const ToyRequest toy = Make(Spec(), {Row(5), Row(9), Row(7)});
  for (const std::size_t row : {std::size_t{2}, std::size_t{0}, std::size_t{1}}) {
    CHECK_FALSE(toy.answer->given());
    WriteOutput(*toy.request, row, {static_cast<float>(row), 0.5F});
    toy.request->RowSucceeded({});
  }
  CHECK(toy.answer->times() == 1);
  CHECK(toy.answer->status().ok());
  CHECK(toy.answer->outcome() == Outcome::kOk);
  CHECK(toy.answer->Floats() == std::vector<float>{0, 0.5F, 1, 0.5F, 2, 0.5F});
  CHECK(toy.answer->Await().shapes == std::vector<std::vector<std::int64_t>>{{3, 2}});
}

TEST_CASE("the report holds the largest figures over the rows", "[request]") {
  const ToyRequest toy = Make(Spec(), {Row(5), Row(60)});
  toy.request->OutputRow(0, 0);
  toy.request->RowSucceeded({.batch_rows = 8,
                             .bucket = 32,
                             .padded_length = 16,
                             .queue = Duration(30),
                             .compute = Duration(1),
                             .estimated = Bytes{100},
                             .retries = 2});
  toy.request->RowSucceeded({.batch_rows = 3,
                             .bucket = 64,
                             .padded_length = 64,
                             .queue = Duration(20),
                             .compute = Duration(5),
                             .estimated = Bytes{200},
                             .retries = 0});
  const RowReport report = toy.answer->Await().report;
  CHECK(report.batch_rows == 8);
  CHECK(report.bucket == 64);
  CHECK(report.padded_length == 64);
  CHECK(report.queue == Duration(30));
  CHECK(report.compute == Duration(5));
  CHECK(report.estimated == Bytes{200});
  CHECK(report.retries == 2);
}

TEST_CASE("the first failure stands, and is told when the last row is finished", "[request]") {
  const ToyRequest toy = Make(Spec(), {Row(5), Row(9), Row(7)});
  CHECK_FALSE(toy.request->gone());
  toy.request->RowFailed(absl::InternalError("the model failed on this request"), Outcome::kFailed);
  CHECK(toy.request->gone());  // its other rows need not run
  CHECK_FALSE(toy.answer->given());
  toy.request->RowFailed(absl::ResourceExhaustedError("later"), Outcome::kOverBudget);
  toy.request->RowSucceeded({});
  CHECK(toy.answer->times() == 1);
  CHECK(toy.answer->status() == absl::InternalError("the model failed on this request"));
  CHECK(toy.answer->outcome() == Outcome::kFailed);
  CHECK(toy.answer->Await().outputs.empty());
}

TEST_CASE("rows dropped since another failed leave that failure standing", "[request]") {
  const ToyRequest toy = Make(Spec(), {Row(5), Row(9)});
  toy.request->RowFailed(absl::DeadlineExceededError("too late"), Outcome::kExpired);
  toy.request->RowDropped();
  CHECK(toy.answer->outcome() == Outcome::kExpired);
}

TEST_CASE("a cancelled request whose rows were dropped is CANCELLED", "[request]") {
  const ToyRequest toy = Make(Spec(), {Row(5), Row(9)});
  toy.request->Cancel();
  CHECK(toy.request->gone());
  CHECK_FALSE(toy.answer->given());
  toy.request->RowDropped();
  toy.request->RowDropped();
  CHECK(toy.answer->status().code() == absl::StatusCode::kCancelled);
  CHECK(toy.answer->outcome() == Outcome::kCancelled);
}

TEST_CASE("rows that finish on several threads at once answer once, with every row's output", "[request]") {
  constexpr std::size_t kRows = 8;
  for (int repeat = 0; repeat < 50; ++repeat) {
    const ToyRequest toy = Make(Spec(), std::vector<Ids>(kRows, Row(4)));
    {
      std::vector<std::jthread> threads;
      for (std::size_t row = 0; row < kRows; ++row) {
        threads.emplace_back([&, row] {
          WriteOutput(*toy.request, row, {static_cast<float>(row), 1});
          toy.request->RowSucceeded({});
        });
      }
    }
    REQUIRE(toy.answer->times() == 1);
    for (std::size_t row = 0; row < kRows; ++row) REQUIRE(toy.answer->Floats()[2 * row] == static_cast<float>(row));
  }
}

TEST_CASE("a row's input lies at the client's own length, and is null where it was left out", "[request]") {
  const ToyRequest toy = Make(Spec(), {{1, 2, 3}, {4, 5}}, {.client_length = 6});
  CHECK(toy.request->client_length() == 6);
  CHECK(LoadElement(DataType::kInt64, toy.request->InputRow(0, 0)) == 1);
  CHECK(LoadElement(DataType::kInt64, toy.request->InputRow(0, 1)) == 4);
  CHECK(toy.request->InputRow(1, 0) == nullptr);
  toy.request->RowDropped();
  toy.request->RowDropped();
}

TEST_CASE("outputs are as long as the client's input, or as the longest row kept where one was cut", "[request]") {
  struct Case {
    const char* what;
    std::vector<std::int64_t> lengths;
    std::int64_t client_length;
    std::int64_t output_length;
  };
  const auto c = GENERATE(values<Case>({
      {"as it came", {20, 30}, 30, 30},
      {"padded by the client", {20, 30}, 700, 700},
      {"cut at 512", {600}, 600, 512},
      {"one of two cut", {600, 20}, 600, 512},
      {"cut and padded by the client", {600, 20}, 800, 512},
  }));
  CAPTURE(c.what);
  const auto spec = Spec({{.name = "tokens", .type = DataType::kFp32, .dims = {kSequenceAxis}}}, {{700, TierAction::kTruncate}});
  std::vector<Ids> rows;
  for (const std::int64_t length : c.lengths) rows.push_back(Row(length));
  const ToyRequest toy = Make(spec, rows, {.client_length = c.client_length});
  CHECK(toy.request->output_length() == c.output_length);
  toy.request->OutputRow(0, 0);
  for (std::size_t i = 0; i < rows.size(); ++i) toy.request->RowSucceeded({});
  const Reply reply = toy.answer->Await();
  const auto count = static_cast<std::int64_t>(rows.size());
  CHECK(reply.shapes == std::vector<std::vector<std::int64_t>>{{count, c.output_length}});
  CHECK(reply.outputs.at(0).size() == static_cast<std::size_t>(count * c.output_length * 4));
  CHECK(reply.outputs.at(0).find_first_not_of('\0') == std::string::npos);  // zeros where nothing was written
}

TEST_CASE("an output that was not wanted is neither made nor answered", "[request]") {
  const auto spec = Spec({{.name = "row", .type = DataType::kFp32, .dims = {2}},
                          {.name = "tokens", .type = DataType::kFp32, .dims = {kSequenceAxis}}});
  const ToyRequest toy = Make(spec, {Row(5)}, {.wanted_outputs = {false, true}});
  CHECK_FALSE(toy.request->wants(0));
  CHECK(toy.request->wants(1));
  toy.request->OutputRow(1, 0);
  toy.request->RowSucceeded({});
  const Reply reply = toy.answer->Await();
  REQUIRE(reply.outputs.size() == 2);
  CHECK(reply.outputs[0].empty());
  CHECK(reply.outputs[1].size() == 5 * sizeof(float));
}

TEST_CASE("a request that was refused before it was queued is abandoned without an answer", "[request]") {
  ToyRequest toy = Make(Spec(), {Row(5), Row(9)});
  toy.request->Abandon();
  toy.request.reset();
  CHECK_FALSE(toy.answer->given());
}

TEST_CASE("a model without a batch dimension answers without one", "[request]") {
  ModelSpec spec = ToySpec();
  spec.max_batch_rows = 0;
  const ToyRequest toy = Make(std::make_shared<const ModelSpec>(spec), {Row(5)});
  toy.request->OutputRow(0, 0);
  toy.request->RowSucceeded({});
  CHECK(toy.answer->Await().shapes == std::vector<std::vector<std::int64_t>>{{4}});
}

TEST_CASE("a request that comes to life and ends unanswered answers INTERNAL", "[request]") {
#ifdef NDEBUG
  ToyRequest toy = Make(Spec(), {Row(5), Row(9)});
  toy.request->RowSucceeded({});
  toy.request.reset();
  CHECK(toy.answer->times() == 1);
  CHECK(toy.answer->status().code() == absl::StatusCode::kInternal);
  CHECK(toy.answer->outcome() == Outcome::kFailed);
#else
  SUCCEED("asserts instead, where assertions are on");
#endif
}

TEST_CASE("an answered request says nothing more when it goes", "[request]") {
  ToyRequest toy = Make(Spec(), {Row(5)});
  toy.request->OutputRow(0, 0);
  toy.request->RowSucceeded({});
  toy.request.reset();
  CHECK(toy.answer->times() == 1);
}

}  // namespace
}  // namespace headroom
