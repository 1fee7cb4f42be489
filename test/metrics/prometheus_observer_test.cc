#include "metrics/prometheus_observer.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "metrics/metric_catalog.h"

namespace headroom {
namespace {

// Samples by name and labels, as they stand on the page.
std::map<std::string, double> SamplesOf(const std::string& page) {
  std::map<std::string, double> samples;
  const std::vector<std::string> lines = absl::StrSplit(page, '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    if (line.front() == '#') continue;
    const std::size_t blank = line.rfind(' ');
    const bool first = samples.emplace(line.substr(0, blank), std::stod(line.substr(blank + 1))).second;
    CHECK(first);
  }
  return samples;
}

// The samples of a page, to be looked up without knowing the order of labels.
class Page {
 public:
  explicit Page(const PrometheusObserver& observer) : text_(observer.Scrape()), samples_(SamplesOf(text_)) {}

  double operator()(const std::string& name, const std::string& labels = "") const {
    const std::string* const sample = Find(name, labels);
    INFO(name << "{" << labels << "}");
    REQUIRE(sample != nullptr);
    return samples_.at(*sample);
  }
  bool Has(const std::string& name, const std::string& labels = "") const { return Find(name, labels) != nullptr; }
  std::size_t series() const { return samples_.size(); }
  const std::string& text() const { return text_; }

 private:
  const std::string* Find(const std::string& name, const std::string& labels) const {
    const std::vector<std::string> wanted = absl::StrSplit(labels, ' ', absl::SkipEmpty());
    for (const auto& entry : samples_) {
      const std::string& sample = entry.first;
      const bool named = sample == name || sample.starts_with(name + "{");
      const auto carried = [&](const std::string& label) { return sample.find(label) != std::string::npos; };
      if (named && std::all_of(wanted.begin(), wanted.end(), carried)) return &sample;
    }
    return nullptr;
  }

  std::string text_;
  std::map<std::string, double> samples_;
};

const std::vector<std::string> kOutcomes = {"ok",      "invalid",   "not_found",   "queue_full", "over_budget",
                                            "expired", "cancelled", "unavailable", "failed"};

const ModelLabels kModel = {"P", {"cpu", "cuda:0"}, {32, 64}};

BatchReport SomeBatch() {
  return {.model = "P",
          .device = "cpu",
          .bucket = 64,
          .rows = 3,
          .useful_tokens = 100,
          .padding_tokens = 92,
          .limited_by = BatchLimit::kMemory,
          .estimated = MiB(120),
          .expected_tensors = MiB(100),
          .actual = MiB(99),
          .compute = std::chrono::milliseconds(20),
          .waits = {std::chrono::milliseconds(1), std::chrono::milliseconds(2), std::chrono::milliseconds(4)}};
}

TEST_CASE("series whose labels are known are there from the start at 0", "[metrics]") {
  PrometheusObserver observer("1.2.3");
  observer.AddModel(kModel);
  const Page page(observer);
  for (const std::string model : {"model=\"P\"", "model=\"(unknown)\""}) {
    CHECK(page("headroom_requests_received_total", model) == 0);
    for (const std::string& outcome : kOutcomes) {
      CHECK(page("headroom_requests_total", absl::StrCat(model, " outcome=\"", outcome, "\"")) == 0);
      CHECK(page("headroom_rows_total", absl::StrCat(model, " outcome=\"", outcome, "\"")) == 0);
    }
    for (const std::string name :
         {"headroom_batch_rows", "headroom_queue_seconds", "headroom_compute_seconds", "headroom_request_seconds"}) {
      CHECK(page(name + "_count", model) == 0);
    }
    for (const std::string reason : {"rows", "memory"}) {
      CHECK(page("headroom_batch_splits_total", absl::StrCat(model, " reason=\"", reason, "\"")) == 0);
    }
  }
  for (const std::string device : {"device=\"cpu\"", "device=\"cuda:0\""}) {
    CHECK(page("headroom_out_of_memory_total", "model=\"P\" " + device) == 0);
    CHECK(page("headroom_memory_estimate_ratio_count", "model=\"P\" " + device) == 0);
    for (const std::string bucket : {"bucket=\"32\"", "bucket=\"64\""}) {
      CHECK(page("headroom_batches_total", absl::StrCat("model=\"P\" ", device, " ", bucket)) == 0);
    }
  }
  CHECK(page("headroom_build_info", "version=\"1.2.3\"") == 1);
  CHECK_FALSE(page.Has("headroom_memory_budget_bytes"));
  CHECK_FALSE(page.Has("headroom_batches_total", "(other)"));
}

TEST_CASE("every metric of the catalog is on the page with its kind and help", "[metrics]") {
  PrometheusObserver observer("1");
  observer.AddModel(kModel);
  observer.SetStateSource([] {
    ServerState state;
    state.queues = {{"P", 0}};
    state.models = {{"P", 1, true}};
    state.devices = {{"cpu", true, 1, BudgetSnapshot{}}};
    state.memory = {{"cpu", "held", MiB(1), MiB(1), ServerState::MemorySeries::Leak{}}};
    state.model_memory = {{"P", 1, "cpu", "allocated", MiB(1)}};
    state.margins = {{"P", "cpu", 32, 1.05}};
    state.ceilings = {{"P", "cpu", 0}};
    state.precisions = {{"P", "cpu", "FP32"}};
    state.exhaustion = {{"cpu", 0}};
    state.stages = {{"device", MiB(1)}};
    state.strains = {{"memory", true}};
    state.resident = MiB(1);
    state.lengths = {{"P", {{9, 1}}}};
    state.ladders = {{"P", 0.5, {16, 64}}};
    return state;
  });
  observer.BatchFinished(SomeBatch());
  const std::string page = observer.Scrape();
  for (const MetricDefinition& metric : MetricCatalog()) {
    CAPTURE(metric.name);
    const char* const kind = metric.kind == MetricKind::kCounter ? "counter"
                             : metric.kind == MetricKind::kGauge ? "gauge"
                                                                 : "histogram";
    CHECK(page.find(absl::StrCat("# HELP ", metric.name, " ", metric.help, "\n")) != std::string::npos);
    CHECK(page.find(absl::StrCat("# TYPE ", metric.name, " ", kind, "\n")) != std::string::npos);
  }
}

TEST_CASE("true lengths are a histogram, made of what is known when the page is asked for", "[metrics]") {
  PrometheusObserver observer("1");
  observer.SetStateSource([] {
    ServerState state;
    state.lengths = {{"P", {{1, 2}, {8, 3}, {9, 1}, {10'000, 4}}}, {"Q", {}}};
    return state;
  });
  const Page page(observer);
  CHECK(page("headroom_row_length_tokens_count", "model=\"P\"") == 10);
  CHECK(page("headroom_row_length_tokens_sum", "model=\"P\"") == 2 + 24 + 9 + 40'000);
  CHECK(page("headroom_row_length_tokens_bucket", "model=\"P\" le=\"8\"") == 5);
  CHECK(page("headroom_row_length_tokens_bucket", "model=\"P\" le=\"16\"") == 6);
  CHECK(page("headroom_row_length_tokens_bucket", "model=\"P\" le=\"8192\"") == 6);
  CHECK(page("headroom_row_length_tokens_bucket", "model=\"P\" le=\"+Inf\"") == 10);
  CHECK(page("headroom_row_length_tokens_count", "model=\"Q\"") == 0);
  CHECK(page("headroom_row_length_tokens_bucket", "model=\"Q\" le=\"+Inf\"") == 0);
}

TEST_CASE("a better ladder is told by what it saves and its buckets", "[metrics]") {
  PrometheusObserver observer("1");
  observer.SetStateSource([] {
    ServerState state;
    state.ladders = {{"P", 0.25, {16, 512}}};
    return state;
  });
  const Page page(observer);
  CHECK(page("headroom_ladder_saving_ratio", "model=\"P\"") == 0.25);
  CHECK(page("headroom_proposed_bucket_tokens", "model=\"P\" place=\"1\"") == 16);
  CHECK(page("headroom_proposed_bucket_tokens", "model=\"P\" place=\"2\"") == 512);
  CHECK_FALSE(page.Has("headroom_ladder_saving_ratio", "model=\"Q\""));
}

TEST_CASE("the useful share of the computed tokens is there once a batch has run", "[metrics]") {
  PrometheusObserver observer("1");
  observer.AddModel(kModel);
  CHECK_FALSE(Page(observer).Has("headroom_useful_token_ratio"));
  BatchReport report = SomeBatch();
  report.useful_tokens = 30;
  report.padding_tokens = 10;
  observer.BatchFinished(report);
  CHECK(Page(observer)("headroom_useful_token_ratio", "model=\"P\"") == 0.75);
}

TEST_CASE("rows beyond the last bucket are counted by treatment", "[metrics]") {
  PrometheusObserver observer("1.2.3");
  observer.AddModel({"P", {"cpu"}, {32}});
  CHECK(Page(observer)("headroom_tail_rows_total", "model=\"P\" treatment=\"solo\"") == 0);
  observer.TailRows("P", TailTreatment::kTruncate, 3);
  observer.TailRows("P", TailTreatment::kTruncate, 1);
  observer.TailRows("P", TailTreatment::kRefused, 2);
  const Page page(observer);
  CHECK(page("headroom_tail_rows_total", "model=\"P\" treatment=\"truncate\"") == 4);
  CHECK(page("headroom_tail_rows_total", "model=\"P\" treatment=\"solo\"") == 0);
  CHECK(page("headroom_tail_rows_total", "model=\"P\" treatment=\"refused\"") == 2);
}

TEST_CASE("requests are counted by outcome, rows where they were admitted", "[metrics]") {
  PrometheusObserver observer("1");
  observer.AddModel(kModel);
  for (int i = 0; i < 3; ++i) observer.RequestReceived("P");
  observer.RequestAnswered("P", Outcome::kOk, 5, std::chrono::milliseconds(3));
  observer.RequestAnswered("P", Outcome::kExpired, 2, std::chrono::milliseconds(700));
  observer.RequestAnswered("P", Outcome::kInvalid, 0, std::chrono::microseconds(50));
  const Page page(observer);
  CHECK(page("headroom_requests_received_total", "model=\"P\"") == 3);
  CHECK(page("headroom_requests_total", "model=\"P\" outcome=\"ok\"") == 1);
  CHECK(page("headroom_requests_total", "model=\"P\" outcome=\"expired\"") == 1);
  CHECK(page("headroom_requests_total", "model=\"P\" outcome=\"invalid\"") == 1);
  CHECK(page("headroom_requests_total", "model=\"P\" outcome=\"failed\"") == 0);
  CHECK(page("headroom_rows_total", "model=\"P\" outcome=\"ok\"") == 5);
  CHECK(page("headroom_rows_total", "model=\"P\" outcome=\"expired\"") == 2);
  CHECK(page("headroom_rows_total", "model=\"P\" outcome=\"invalid\"") == 0);
  CHECK(page("headroom_request_seconds_count", "model=\"P\"") == 3);
  CHECK(page("headroom_request_seconds_sum", "model=\"P\"") == Approx(0.70305));
  CHECK(page("headroom_request_seconds_bucket", "model=\"P\" le=\"0.0001\"") == 1);
  CHECK(page("headroom_request_seconds_bucket", "model=\"P\" le=\"0.0032\"") == 2);
  CHECK(page("headroom_request_seconds_bucket", "model=\"P\" le=\"+Inf\"") == 3);
}

TEST_CASE("every outcome has a name of its own", "[metrics]") {
  PrometheusObserver observer("1");
  observer.AddModel(kModel);
  for (std::size_t i = 0; i < kOutcomes.size(); ++i) {
    for (std::size_t n = 0; n <= i; ++n) observer.RequestAnswered("P", static_cast<Outcome>(i), 1, Duration{0});
  }
  const Page page(observer);
  for (std::size_t i = 0; i < kOutcomes.size(); ++i) {
    CHECK(page("headroom_requests_total", absl::StrCat("model=\"P\" outcome=\"", kOutcomes[i], "\"")) ==
          static_cast<double>(i + 1));
  }
}

TEST_CASE("Triton's names say the same, by version", "[metrics]") {
  PrometheusObserver observer("1");
  ModelLabels labels = kModel;
  labels.version = 3;
  observer.AddModel(labels);
  for (int i = 0; i < 12; ++i) observer.RequestReceived("P");
  observer.RequestServed("P", {std::chrono::microseconds(10), std::chrono::microseconds(20), std::chrono::microseconds(30),
                               std::chrono::microseconds(40), TimePoint(std::chrono::seconds(5))});
  observer.RequestServed("P", {std::chrono::microseconds(1), std::chrono::microseconds(2), std::chrono::microseconds(3),
                               std::chrono::microseconds(4), TimePoint(std::chrono::seconds(4))});
  observer.RequestAnswered("P", Outcome::kOk, 5, std::chrono::microseconds(500));
  observer.RequestAnswered("P", Outcome::kOk, 5, std::chrono::microseconds(250));
  // Each of the others once, and one twice.
  for (std::size_t i = 1; i < kOutcomes.size(); ++i) {
    observer.RequestAnswered("P", static_cast<Outcome>(i), 1, std::chrono::microseconds(7));
  }
  observer.RequestAnswered("P", Outcome::kFailed, 1, std::chrono::microseconds(7));
  observer.BatchFinished(SomeBatch());
  const std::string of = "model=\"P\" version=\"3\"";
  const Page page(observer);
  CHECK(page("nv_inference_request_success", of) == 2);
  CHECK(page("nv_inference_request_failure", of + " reason=\"REJECTED\"") == 4);
  CHECK(page("nv_inference_request_failure", of + " reason=\"CANCELED\"") == 1);
  CHECK(page("nv_inference_request_failure", of + " reason=\"BACKEND\"") == 2);
  CHECK(page("nv_inference_request_failure", of + " reason=\"OTHER\"") == 2);
  CHECK(page("nv_inference_count", of) == 3);
  CHECK(page("nv_inference_exec_count", of) == 1);
  CHECK(page("nv_inference_request_duration_us", of) == 750);
  CHECK(page("nv_inference_queue_duration_us", of) == 11);
  CHECK(page("nv_inference_compute_input_duration_us", of) == 22);
  CHECK(page("nv_inference_compute_infer_duration_us", of) == 33);
  CHECK(page("nv_inference_compute_output_duration_us", of) == 44);
  CHECK(page("nv_inference_pending_request_count", of) == 1);
  CHECK(page("nv_inference_request_success", "model=\"(unknown)\"") == 0);

  const ModelTotals totals = observer.TotalsOf("P", 3);
  CHECK(totals.failed.count == 9);
  CHECK(totals.failed.time == std::chrono::microseconds(63));
  CHECK(totals.last_answer == TimePoint(std::chrono::seconds(5)));
  CHECK(observer.TotalsOf("P", 4).succeeded.count == 0);
  CHECK(observer.TotalsOf("Q", 3).succeeded.count == 0);
}

TEST_CASE("a batch is told by its rows, with its times", "[metrics]") {
  PrometheusObserver observer("1");
  observer.AddModel(kModel);
  BatchReport report = SomeBatch();
  report.collate = std::chrono::microseconds(5);
  report.scatter = std::chrono::microseconds(6);
  observer.BatchFinished(report);
  observer.BatchFinished(report);
  report.rows = 1;
  observer.BatchFinished(report);
  const ModelTotals totals = observer.TotalsOf("P", kModel.version);
  REQUIRE(totals.by_rows.size() == 2);
  CHECK(totals.by_rows.at(3).count == 2);
  CHECK(totals.by_rows.at(3).compute_input == std::chrono::microseconds(10));
  CHECK(totals.by_rows.at(3).compute_infer == std::chrono::milliseconds(40));
  CHECK(totals.by_rows.at(3).compute_output == std::chrono::microseconds(12));
  CHECK(totals.by_rows.at(1).count == 1);
  CHECK(totals.rows == 7);
}

TEST_CASE("a version counts what was told while it was the one served", "[metrics]") {
  PrometheusObserver observer("1");
  const auto serve = [&](std::int64_t version) {
    ModelLabels labels = kModel;
    labels.version = version;
    observer.AddModel(labels);
  };
  const auto answer = [&](int count) {
    for (int i = 0; i < count; ++i) {
      observer.RequestReceived("P");
      observer.RequestAnswered("P", Outcome::kOk, 1, std::chrono::milliseconds(1));
      observer.BatchFinished(SomeBatch());
    }
  };
  const auto counted = [&](std::int64_t version) { return observer.TotalsOf("P", version).succeeded.count; };
  serve(1);
  answer(2);
  serve(2);
  CHECK(counted(2) == 0);
  CHECK(observer.TotalsOf("P", 2).by_rows.empty());
  observer.RequestReceived("P");
  answer(3);
  serve(2);  // loaded anew
  answer(1);
  serve(1);  // and back
  answer(5);
  CHECK(counted(1) == 7);
  CHECK(counted(2) == 4);
  const Page page(observer);
  CHECK(page("nv_inference_request_success", "version=\"1\"") == 7);
  CHECK(page("nv_inference_request_success", "version=\"2\"") == 4);
  CHECK(page("nv_inference_exec_count", "version=\"2\"") == 4);
  CHECK(page("headroom_requests_total", "model=\"P\" outcome=\"ok\"") == 11);
  // The one that is not answered yet is whoever's turn it is.
  CHECK(page("nv_inference_pending_request_count", "version=\"1\"") == 1);
  CHECK_FALSE(page.Has("nv_inference_pending_request_count", "version=\"2\""));
}

TEST_CASE("runs that failed and were repeated are counted by why", "[metrics]") {
  PrometheusObserver observer("1");
  observer.AddModel(kModel);
  observer.BatchRetried("P", RetryReason::kOutOfMemory);
  observer.BatchRetried("P", RetryReason::kModelError);
  observer.BatchRetried("P", RetryReason::kModelError);
  const Page page(observer);
  CHECK(page("headroom_batch_retries_total", "model=\"P\" reason=\"memory\"") == 1);
  CHECK(page("headroom_batch_retries_total", "model=\"P\" reason=\"error\"") == 2);
}

TEST_CASE("a batch is counted with its rows, tokens, times and limit", "[metrics]") {
  PrometheusObserver observer("1");
  observer.AddModel(kModel);
  observer.BatchFinished(SomeBatch());
  BatchReport second = SomeBatch();
  second.bucket = 32;
  second.limited_by = BatchLimit::kRows;
  second.actual = std::nullopt;
  observer.BatchFinished(second);
  BatchReport third = SomeBatch();
  third.device = std::string("cuda:0");
  third.limited_by = BatchLimit::kNone;
  third.actual = MiB(101);
  third.under_estimated = true;
  observer.BatchFinished(third);

  const Page page(observer);
  CHECK(page("headroom_batches_total", "model=\"P\" device=\"cpu\" bucket=\"64\"") == 1);
  CHECK(page("headroom_batches_total", "model=\"P\" device=\"cpu\" bucket=\"32\"") == 1);
  CHECK(page("headroom_batches_total", "model=\"P\" device=\"cuda:0\" bucket=\"64\"") == 1);
  CHECK(page("headroom_memory_underestimates_total", "model=\"P\" device=\"cpu\"") == 0);
  CHECK(page("headroom_memory_underestimates_total", "model=\"P\" device=\"cuda:0\"") == 1);
  CHECK(page("headroom_batch_rows_sum", "model=\"P\"") == 9);
  CHECK(page("headroom_batch_rows_count", "model=\"P\"") == 3);
  CHECK(page("headroom_batch_splits_total", "model=\"P\" reason=\"memory\"") == 1);
  CHECK(page("headroom_batch_splits_total", "model=\"P\" reason=\"rows\"") == 1);
  CHECK(page("headroom_useful_tokens_total", "model=\"P\"") == 300);
  CHECK(page("headroom_padding_tokens_total", "model=\"P\"") == 276);
  CHECK(page("headroom_compute_seconds_sum", "model=\"P\"") == Approx(0.06));
  CHECK(page("headroom_queue_seconds_count", "model=\"P\"") == 9);
  CHECK(page("headroom_queue_seconds_sum", "model=\"P\"") == Approx(0.021));
  CHECK(page("headroom_memory_estimate_ratio_count", "model=\"P\" device=\"cpu\"") == 1);
  CHECK(page("headroom_memory_estimate_ratio_bucket", "model=\"P\" device=\"cpu\" le=\"0.99\"") == 1);
  CHECK(page("headroom_memory_estimate_ratio_bucket", "model=\"P\" device=\"cuda:0\" le=\"1\"") == 0);
  CHECK(page("headroom_memory_estimate_ratio_bucket", "model=\"P\" device=\"cuda:0\" le=\"1.01\"") == 1);
}

TEST_CASE("names that were not announced make few series", "[metrics]") {
  PrometheusObserver observer("1");
  observer.AddModel(kModel);
  const std::size_t before = Page(observer).series();
  for (int i = 0; i < 100; ++i) {
    const std::string name = absl::StrCat("no_model_", i);
    observer.RequestReceived(name);
    observer.RequestAnswered(name, Outcome::kNotFound, 0, Duration{0});
  }
  observer.RequestReceived(kUnknownModel);
  CHECK(Page(observer).series() == before);
  CHECK(Page(observer)("headroom_requests_received_total", "model=\"(unknown)\"") == 101);
  CHECK(Page(observer)("headroom_requests_total", "model=\"(unknown)\" outcome=\"not_found\"") == 100);

  BatchReport report = SomeBatch();
  for (const std::int64_t bucket : {513, 700, 1024}) {  // rows that ran alone beyond the last bucket
    report.bucket = bucket;
    observer.BatchFinished(report);
  }
  CHECK(Page(observer).series() == before + 2);  // and, since a batch has run, the share of useful tokens
  CHECK(Page(observer)("headroom_batches_total", "model=\"P\" device=\"cpu\" bucket=\"(other)\"") == 3);

  report.device = std::string("tpu:7");
  observer.BatchFinished(report);
  observer.OutOfMemory("P", "tpu:8");
  const Page page(observer);
  CHECK(page("headroom_batches_total", "model=\"P\" device=\"(other)\" bucket=\"(other)\"") == 1);
  CHECK(page("headroom_out_of_memory_total", "model=\"P\" device=\"(other)\"") == 1);
  CHECK(page.text().find("tpu:") == std::string::npos);
}

TEST_CASE("adding a model again keeps its counts and adds what is new", "[metrics]") {
  PrometheusObserver observer("1");
  observer.AddModel(kModel);
  observer.BatchFinished(SomeBatch());
  observer.OutOfMemory("P", "cpu");
  observer.AddModel({"P", {"cpu"}, {128}});
  BatchReport report = SomeBatch();
  observer.BatchFinished(report);
  report.bucket = 128;
  observer.BatchFinished(report);
  const Page page(observer);
  CHECK(page("headroom_batches_total", "model=\"P\" device=\"cpu\" bucket=\"64\"") == 2);
  CHECK(page("headroom_batches_total", "model=\"P\" device=\"cpu\" bucket=\"128\"") == 1);
  CHECK(page("headroom_batches_total", "model=\"P\" device=\"cuda:0\" bucket=\"64\"") == 0);
  CHECK(page("headroom_out_of_memory_total", "model=\"P\" device=\"cpu\"") == 1);
  CHECK_FALSE(page.Has("headroom_batches_total", "(other)"));
}

TEST_CASE("gauges are read at each scrape, and absent where they cannot be", "[metrics]") {
  PrometheusObserver observer("1");
  std::int64_t waiting = 7;
  observer.SetStateSource([&] {
    ServerState state;
    state.queues = {{"P", waiting}};
    state.models = {{"P", 3, true}, {"P", 4, false}};
    state.breaker_open_callers = 2;
    state.breaker_refusals = 9;
    state.ready = true;
    state.strains = {{"memory", false}, {"latency", true}};
    state.connections = 12;
    state.refused_connections = 34;
    state.devices = {{"cpu", true, 2, BudgetSnapshot{GiB(4), GiB(3), GiB(2), GiB(1)}}, {"cuda:0", false, 5, std::nullopt}};
    return state;
  });
  const Page first(observer);
  CHECK(first("headroom_breaker_open_callers") == 2);
  CHECK(first("headroom_breaker_refusals_total") == 9);
  CHECK(first("headroom_ready") == 1);
  CHECK(first("headroom_readiness_strained", "threshold=\"memory\"") == 0);
  CHECK(first("headroom_readiness_strained", "threshold=\"latency\"") == 1);
  CHECK(first("headroom_grpc_connections") == 12);
  CHECK(first("headroom_grpc_connections_refused_total") == 34);
  CHECK(first("headroom_degradation_level", "device=\"cpu\"") == 0);
  CHECK(first("headroom_queue_rows", "model=\"P\"") == 7);
  CHECK(first("headroom_model_ready", "model=\"P\" version=\"3\"") == 1);
  CHECK(first("headroom_model_ready", "model=\"P\" version=\"4\"") == 0);
  CHECK(first("headroom_memory_budget_bytes", "device=\"cpu\"") == 3221225472.0);
  CHECK(first("headroom_memory_reserved_bytes", "device=\"cpu\"") == 2147483648.0);
  CHECK(first("headroom_memory_peak_bytes", "device=\"cpu\"") == 1073741824.0);
  CHECK_FALSE(first.Has("headroom_memory_budget_bytes", "device=\"cuda:0\""));
  CHECK(first("headroom_model_loads_total", "device=\"cpu\"") == 2);
  CHECK(first("headroom_model_loads_total", "device=\"cuda:0\"") == 5);
  CHECK(first("headroom_device_dry", "device=\"cpu\"") == 0);
  CHECK(first("headroom_device_dry", "device=\"cuda:0\"") == 1);

  waiting = 0;
  CHECK(Page(observer)("headroom_queue_rows", "model=\"P\"") == 0);
  observer.SetStateSource(nullptr);
  CHECK_FALSE(Page(observer).Has("headroom_queue_rows"));
}

TEST_CASE("memory at rest is shown with its leak where there is an estimate", "[metrics]") {
  PrometheusObserver observer("1");
  observer.SetStateSource([] {
    ServerState state;
    state.memory = {{"cpu", "allocated", MiB(10), MiB(12), std::nullopt},
                    {"host", "resident", MiB(20), MiB(30), ServerState::MemorySeries::Leak{63.5, 0.9995, true}}};
    state.model_memory = {{"P", 3, "cpu", "allocated", MiB(7)}, {"P", 3, "cpu", "resident", {-4096}}};
    state.exhaustion = {{"cpu", std::numeric_limits<double>::infinity()}, {"host", 1234.5}};
    state.margins = {{"P", "cpu", 32, 1.05}, {"P", "cpu", 64, 1.4375}};
    state.ceilings = {{"P", "cpu", 2}};
    state.precisions = {{"P", "cpu", "BF16", 0.99995, 0.004}};
    state.stages = {{"device", MiB(5)}, {"reply", MiB(6)}};
    state.resident = MiB(300);
    return state;
  });
  const Page page(observer);
  const std::string allocated = "device=\"cpu\" memory=\"allocated\"";
  const std::string resident = "device=\"host\" memory=\"resident\"";
  CHECK(page("headroom_memory_baseline_bytes", allocated) == 10485760);
  CHECK(page("headroom_memory_at_rest_bytes", allocated) == 12582912);
  CHECK_FALSE(page.Has("headroom_memory_leak_bytes_per_call", allocated));
  CHECK_FALSE(page.Has("headroom_memory_leak_confidence_ratio", allocated));
  CHECK_FALSE(page.Has("headroom_memory_leak_found", allocated));
  CHECK(page("headroom_memory_leak_bytes_per_call", resident) == 63.5);
  CHECK(page("headroom_memory_leak_confidence_ratio", resident) == 0.9995);
  CHECK(page("headroom_memory_leak_found", resident) == 1);
  CHECK(page("headroom_model_memory_bytes", "model=\"P\" version=\"3\" memory=\"allocated\"") == 7340032);
  CHECK(page("headroom_model_memory_bytes", "model=\"P\" version=\"3\" memory=\"resident\"") == -4096);
  CHECK(std::isinf(page("headroom_memory_exhaustion_seconds", "device=\"cpu\"")));
  CHECK(page("headroom_memory_exhaustion_seconds", "device=\"host\"") == 1234.5);
  CHECK(page("headroom_memory_margin_ratio", "model=\"P\" device=\"cpu\" bucket=\"64\"") == 1.4375);
  CHECK(page("headroom_memory_shape_ceilings", "model=\"P\" device=\"cpu\"") == 2);
  CHECK(page("headroom_model_precision_min_cosine", "model=\"P\" device=\"cpu\" precision=\"BF16\"") == 0.99995);
  CHECK(page("headroom_model_precision_max_error", "model=\"P\" device=\"cpu\" precision=\"BF16\"") == 0.004);
  CHECK(page("headroom_stage_memory_bytes", "stage=\"device\"") == 5242880);
  CHECK(page("headroom_stage_memory_bytes", "stage=\"reply\"") == 6291456);
  CHECK(page("headroom_resident_memory_bytes") == 314572800);
}

TEST_CASE("label values that need escaping keep the page readable", "[metrics]") {
  PrometheusObserver observer("1");
  observer.AddModel({"a\"b\\c\nd", {"cpu"}, {0}});
  CHECK(Page(observer)("headroom_requests_received_total", R"(model="a\"b\\c\nd")") == 0);
}

TEST_CASE("several threads may count, add and scrape at once", "[metrics]") {
  PrometheusObserver observer("1");
  observer.AddModel(kModel);
  observer.SetStateSource([] { return ServerState{{{"P", 1}}, {}, {}}; });
  constexpr int kThreads = 4;
  constexpr int kEvents = 500;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEvents; ++i) {
        observer.RequestReceived("P");
        observer.RequestAnswered("P", Outcome::kOk, 1, Duration{1000});
        observer.BatchFinished(SomeBatch());
        if (i % 100 == 0) observer.AddModel({"P", {"cpu"}, {t * 1000 + i}});
        if (i % 100 == 50) observer.Scrape();
        if (i % 100 == 70) observer.SetStateSource([] { return ServerState{}; });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Page page(observer);
  CHECK(page("headroom_requests_received_total", "model=\"P\"") == kThreads * kEvents);
  CHECK(page("headroom_requests_total", "model=\"P\" outcome=\"ok\"") == kThreads * kEvents);
  CHECK(page("headroom_batches_total", "model=\"P\" device=\"cpu\" bucket=\"64\"") == kThreads * kEvents);
  CHECK(page("headroom_queue_seconds_count", "model=\"P\"") == 3 * kThreads * kEvents);
}

}  // namespace
}  // namespace headroom
