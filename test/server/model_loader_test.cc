#include "server/model_loader.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "test/fakes/fake_device.h"
#include "test/fakes/toy_request.h"
#include "test/server/scratch_folder.h"

namespace headroom {
namespace {

// A model whose answers do not depend on padding: for each token its id, cut back to the row's length.
ModelSpec PaddingProofSpec(const std::string& name = "P") {
  ModelSpec spec = ToySpec(name);
  spec.outputs = {{.name = "tokens", .type = DataType::kFp32, .dims = {kSequenceAxis}}};
  spec.sequence.buckets = {32, 64};
  return spec;
}

// One whose answers tell the padded length.
ModelSpec PaddingSensitiveSpec(PaddingCheck check, const std::string& name = "P") {
  ModelSpec spec = ToySpec(name);
  spec.sequence.buckets = {32, 64};
  spec.sequence.padding_check = check;
  return spec;
}

// Keeps the log's warnings as long as it lives.
class Warnings {
 public:
  Warnings() {
    SetLogSink([this](const LogEvent& event) {
      if (event.level == LogLevel::kWarning) messages_.push_back(event.message);
    });
  }
  ~Warnings() { SetLogSink(nullptr); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

  const std::vector<std::string>& messages() const { return messages_; }

 private:
  std::vector<std::string> messages_;
};

// Devices and a repository's folder, as a start of the server finds them.
class Start {
 public:
  explicit Start(const ScratchFolder& folder, std::size_t devices = 1) : folder_(folder) {
    for (std::size_t i = 0; i < devices; ++i) {
      FakeDevice::Options options;
      options.name = absl::StrCat("cpu", i);
      options.peak = [this, linear = options.peak](BatchShape shape) {
        ++shapes_asked_;
        return linear(shape);
      };
      auto serving = std::make_unique<ServingDevice>();
      auto fake = std::make_unique<FakeDevice>(std::move(options));
      fake->during_run = [this](const PaddedBatch& batch) {
        shapes_run.push_back(batch.shape);
        on_run();
      };
      serving->device = std::move(fake);
      serving->budget = std::make_unique<MemoryBudget>(*serving->device, 0.8);
      devices_.push_back(std::move(serving));
    }
  }

  RepositoryModel Model(ModelSpec spec, const std::string& sha256 = "5ea1") const {
    RepositoryModel model;
    model.name = spec.name;
    model.version = 7;
    model.model_file = folder_.PathOf(spec.name + ".pt");
    model.sha256 = sha256;
    model.config.set_name(spec.name);
    model.spec = std::move(spec);
    return model;
  }

  absl::StatusOr<std::vector<CatalogEntry>> Load(const std::vector<RepositoryModel>& models) {
    return LoadModels(models, devices_, registry_, options, stop.get_token());
  }
  absl::Status Fault(const RepositoryModel& model) { return Load({model}).status(); }

  FakeDevice& device(std::size_t index = 0) { return static_cast<FakeDevice&>(*devices_[index]->device); }
  ServingDevice& serving(std::size_t index = 0) { return *devices_[index]; }
  // Batches that were measured, but not run otherwise.
  int probes() const {
    int runs = 0;
    for (const auto& device : devices_) runs += static_cast<const FakeDevice&>(*device->device).runs();
    return shapes_asked_ - runs;
  }

  ModelOptions options;
  std::stop_source stop;
  std::function<void()> on_run = [] {};
  std::vector<BatchShape> shapes_run;

 private:
  const ScratchFolder& folder_;
  int shapes_asked_ = 0;
  std::vector<std::unique_ptr<ServingDevice>> devices_;
  ModelRegistry registry_;
};

TEST_CASE("what a model's load and warm-up added is kept for each device", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder, 2);
  const auto entries = start.Load({start.Model(PaddingProofSpec("first")), start.Model(PaddingProofSpec("second"))});
  REQUIRE(entries.ok());
  for (const CatalogEntry& entry : *entries) {
    for (const ModelInstance& instance : entry.model->instances) {
      CHECK(instance.footprint.allocated == MiB(1));  // the fake's weights, once, whatever was there before
      CHECK(instance.footprint.resident.has_value());
    }
  }
}

TEST_CASE("a model is loaded once, and served with its configuration", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  const auto entries = start.Load({start.Model(PaddingProofSpec())});
  REQUIRE(entries.ok());
  REQUIRE(entries->size() == 1);
  const ServedModel& model = *entries->front().model;
  CHECK(model.spec->name == "P");
  CHECK(model.version == 7);
  CHECK(entries->front().config->name() == "P");
  REQUIRE(model.instances.size() == 1);
  CHECK(model.instances[0].on == &start.serving());
  CHECK(start.device().loads() == 1);
}

TEST_CASE("every length is warmed more than once, with one row and with several, the shortest first", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  ModelSpec spec = PaddingProofSpec();
  spec.sequence.padding_check = PaddingCheck::kOff;
  spec.sequence.tiers = {{100, TierAction::kSolo}};
  REQUIRE(start.Load({start.Model(spec)}).ok());
  for (const BatchShape shape : {BatchShape{1, 32}, {2, 32}, {1, 64}, {2, 64}, {1, 100}}) {
    CHECK(std::count(start.shapes_run.begin(), start.shapes_run.end(), shape) >= 2);
  }
  CHECK(std::is_sorted(start.shapes_run.begin(), start.shapes_run.end(),
                       [](const BatchShape& a, const BatchShape& b) { return a.length < b.length; }));
}

TEST_CASE("fixed shapes are warmed too, with and without a batch dimension", "[model_loader]") {
  ModelSpec spec = ToySpec();
  spec.inputs = {{.name = "x", .type = DataType::kFp32, .dims = {2}, .value_range = {}}};
  spec.outputs = {{.name = "y", .type = DataType::kFp32, .dims = {2}}};
  for (const std::int64_t rows : {0, 8}) {
    const ScratchFolder folder;
    Start start(folder);
    spec.max_batch_rows = rows;
    REQUIRE(start.Load({start.Model(spec)}).ok());
    CHECK(std::count(start.shapes_run.begin(), start.shapes_run.end(), BatchShape{1, 0}) >= 2);
    CHECK((std::count(start.shapes_run.begin(), start.shapes_run.end(), BatchShape{2, 0}) >= 2) == (rows > 0));
  }
}

TEST_CASE("what is served knows what its batches take", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  const auto entries = start.Load({start.Model(PaddingProofSpec())});
  REQUIRE(entries.ok());
  const CalibratedEstimator& estimator = entries->front().model->instances[0].estimator;
  for (const BatchShape shape : {BatchShape{1, 32}, {3, 32}, {5, 64}, {8, 64}}) {
    const Bytes true_peak = KiB(64) + KiB(shape.rows * shape.length);
    const Bytes estimate = estimator.Peak(shape).value();
    CHECK(estimate >= true_peak);
    CHECK(static_cast<double>(estimate.count) <= 1.01 * static_cast<double>(true_peak.count) + 4096);
  }
}

TEST_CASE("the largest batch is what fits, the margin included", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  ModelSpec spec = PaddingProofSpec();
  spec.safety_margin = 0.5;
  const auto entries = start.Load({start.Model(spec)});
  REQUIRE(entries.ok());
  const ServedModel& model = *entries->front().model;
  const auto largest = [&](std::int64_t bucket, Bytes budget) { return LargestBatch(model, model.instances[0], bucket, budget); };
  // A batch at 64 takes 1.5 × (64 KiB + 64 KiB a row), and at most 6 KiB more by the estimator's allowance.
  CHECK(largest(64, {0}) == 0);
  CHECK(largest(64, KiB(191)) == 0);
  CHECK(largest(64, KiB(198)) == 1);
  CHECK(largest(64, KiB(479)) == 3);
  CHECK(largest(64, KiB(486)) == 4);
  CHECK(largest(64, GiB(1)) == 8);
  CHECK(largest(32, KiB(479)) >= 7);
  CHECK(largest(128, GiB(1)) == 0);  // a length that the model is not served at
}

TEST_CASE("measurements are kept for the next start", "[model_loader]") {
  const ScratchFolder folder;
  const auto probes = [&](const ModelSpec& spec, const std::string& sha256 = "5ea1") {
    Start start(folder);
    CHECK(start.Load({start.Model(spec, sha256)}).ok());
    return start.probes();
  };
  const ModelSpec spec = PaddingProofSpec();
  const int measured = probes(spec);
  CHECK(measured >= 8);
  CHECK(probes(spec) == 0);

  CHECK(probes(spec, "0ther") == measured);  // another module
  ModelSpec larger = spec;
  larger.max_batch_rows = 16;
  CHECK(probes(larger) > 0);
  ModelSpec longer = spec;
  longer.sequence.buckets.push_back(128);
  CHECK(probes(longer) > 0);
  ModelSpec tighter = spec;
  tighter.sequence.padding = Padding::kExact;
  CHECK(probes(tighter) > 0);

  CHECK(probes(spec) == 0);  // each has a file of its own
}

TEST_CASE("a kept measurement gives the same estimates", "[model_loader]") {
  const ScratchFolder folder;
  std::vector<std::int64_t> estimates;
  for (int i = 0; i < 2; ++i) {
    Start start(folder);
    const auto entries = start.Load({start.Model(PaddingProofSpec())});
    REQUIRE(entries.ok());
    for (std::int64_t rows = 1; rows <= 8; ++rows) {
      estimates.push_back(entries->front().model->instances[0].estimator.Peak({rows, 64}).value().count);
    }
  }
  CHECK(std::equal(estimates.begin(), estimates.begin() + 8, estimates.begin() + 8));
}

TEST_CASE("a kept file that is not whole is measured anew", "[model_loader]") {
  const ScratchFolder folder;
  Start first(folder);
  REQUIRE(first.Load({first.Model(PaddingProofSpec())}).ok());
  REQUIRE(folder.size() == 1);
  const std::filesystem::path kept = *std::filesystem::directory_iterator(folder.path());
  std::filesystem::resize_file(kept, std::filesystem::file_size(kept) - 10);
  Start second(folder);
  CHECK(second.Load({second.Model(PaddingProofSpec())}).ok());
  CHECK(second.probes() == first.probes());
}

TEST_CASE("measurements are kept in the folder that the options name", "[model_loader]") {
  const ScratchFolder folder;
  const ScratchFolder cache;
  for (const bool again : {false, true}) {
    Start start(folder);
    start.options.calibration_cache = cache.path();
    CHECK(start.Load({start.Model(PaddingProofSpec())}).ok());
    CHECK((start.probes() == 0) == again);
  }
  CHECK(folder.size() == 0);
  CHECK(cache.size() == 1);
}

TEST_CASE("where measurements cannot be kept the model is served all the same", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  start.options.calibration_cache = folder.PathOf("missing");
  const Warnings warnings;
  CHECK(start.Load({start.Model(PaddingProofSpec())}).ok());
  CHECK(warnings.messages() ==
        std::vector<std::string>{"the next start will measure again; --calibration-cache names a folder that can be written"});
}

TEST_CASE("a module that cannot be loaded is refused, with its name", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  start.device().on_load = [] { return absl::InvalidArgumentError("model.pt is no TorchScript module"); };
  const absl::Status status = start.Fault(start.Model(PaddingProofSpec()));
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message() == "model 'P': model.pt is no TorchScript module");
}

TEST_CASE("wrong outputs are refused in warm-up, with the model's name and the output's", "[model_loader]") {
  using Spoil = std::function<void(std::vector<HostTensor>&)>;
  const std::vector<std::pair<Spoil, std::string>> cases = {
      {[](std::vector<HostTensor>& outputs) { outputs.clear(); }, "model 'P': the module returns 0 outputs, declared are 1"},
      {[](std::vector<HostTensor>& outputs) { outputs[0].type = DataType::kInt32; },
       "model 'P': output 'tokens' is INT32, declared is FP32"},
      {[](std::vector<HostTensor>& outputs) {
         outputs[0].shape = {outputs[0].shape[1], outputs[0].shape[0]};
       },
       "model 'P': output 'tokens' has the shape [32, 1] for a batch of 1 rows: its first dimension must be the rows"},
      {[](std::vector<HostTensor>& outputs) {
         outputs[0].shape = {1, 31};
       },
       "model 'P': output 'tokens' has the shape [1, 31], its declared dims ask for [1, 32]"},
  };
  for (const auto& [spoil, text] : cases) {
    const ScratchFolder folder;
    Start start(folder);
    start.device().on_outputs = spoil;
    const absl::Status status = start.Fault(start.Model(PaddingProofSpec()));
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(status.message() == text);
    CHECK(folder.size() == 0);
  }
}

TEST_CASE("a model whose rows are not the batch's is found out", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  // Right for one row, and so only wrong where there are more.
  start.device().on_outputs = [](std::vector<HostTensor>& outputs) { outputs[0].shape[0] = 1; };
  CHECK(start.Fault(start.Model(PaddingProofSpec())).message() ==
        "model 'P': output 'tokens' has the shape [1, 32] for a batch of 2 rows: its first dimension must be the rows");
}

TEST_CASE("a model that fails in warm-up is refused", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  start.device().FailRun(2, ModelError{"index out of range"});
  const absl::Status status = start.Fault(start.Model(PaddingProofSpec()));
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(status.message() == "model 'P': it fails in warm-up on 1 rows of length 32: index out of range");
}

TEST_CASE("a device that is lost in warm-up ends the start", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  start.device().FailRun(1, DeviceLost{"the bus is off"});
  const absl::Status status = start.Fault(start.Model(PaddingProofSpec()));
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK(status.message() == "model 'P': the device was lost in warm-up: the bus is off");
}

TEST_CASE("running out of memory in warm-up is for the calibration to judge", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  for (int run = 1; run <= 100; ++run) start.device().FailRun(run, OutOfMemory{});
  ModelSpec spec = PaddingProofSpec();
  spec.sequence.padding_check = PaddingCheck::kOff;
  CHECK(start.Load({start.Model(spec)}).ok());
}

TEST_CASE("a model of which not one row fits is refused", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  start.device().SetNeighbour(MiB(64) - MiB(1) - KiB(80));
  const absl::Status status = start.Fault(start.Model(PaddingProofSpec()));
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(std::string(status.message()).rfind("model 'P': one row of length 32 needs more than the ", 0) == 0);
}

TEST_CASE("padding that changes answers is refused, warned of, or left to the user", "[model_loader]") {
  struct Case {
    PaddingCheck check;
    bool serves;
    std::vector<std::string> warnings;
  };
  const std::vector<Case> cases = {
      {PaddingCheck::kRefuse, false, {}},
      {PaddingCheck::kWarn, true, {"padding changes the answers of this model"}},
      {PaddingCheck::kOff, true, {}},
  };
  for (const Case& c : cases) {
    const ScratchFolder folder;
    Start start(folder);
    const Warnings warnings;
    const absl::Status status = start.Fault(start.Model(PaddingSensitiveSpec(c.check)));
    CHECK(status.ok() == c.serves);
    CHECK(warnings.messages() == c.warnings);
    if (c.serves) continue;
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(std::string(status.message()).rfind("model 'P': padding changes its answers", 0) == 0);
  }
}

TEST_CASE("a start that is stopped before it begins runs nothing", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  start.stop.request_stop();
  CHECK(start.Fault(start.Model(PaddingProofSpec())).code() == absl::StatusCode::kCancelled);
  CHECK(start.device().runs() == 0);
}

TEST_CASE("a start that is stopped in warm-up ends at the next length", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  start.on_run = [&] { start.stop.request_stop(); };
  CHECK(start.Fault(start.Model(PaddingProofSpec())).code() == absl::StatusCode::kCancelled);
  CHECK(std::all_of(start.shapes_run.begin(), start.shapes_run.end(), [](const BatchShape& shape) { return shape.length == 32; }));
  CHECK(start.probes() == 0);
}

TEST_CASE("a start that is stopped while measuring keeps nothing", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  // The last shape of the warm-up.
  start.on_run = [&] {
    if (start.shapes_run.back() == BatchShape{2, 64}) start.stop.request_stop();
  };
  CHECK(start.Fault(start.Model(PaddingProofSpec())).code() == absl::StatusCode::kCancelled);
  CHECK(start.probes() <= 1);
  CHECK(folder.size() == 0);
}

TEST_CASE("each model is loaded on every device, and measured within what all of them leave", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder, /*devices=*/2);
  const auto entries = start.Load({start.Model(PaddingProofSpec("P")), start.Model(PaddingProofSpec("Q"), "0ther")});
  REQUIRE(entries.ok());
  REQUIRE(entries->size() == 2);
  for (const CatalogEntry& entry : *entries) {
    REQUIRE(entry.model->instances.size() == 2);
    CHECK(entry.model->instances[0].on == &start.serving(0));
    CHECK(entry.model->instances[1].on == &start.serving(1));
  }
  for (const std::size_t device : {0U, 1U}) {
    CHECK(start.device(device).loads() == 2);
    CHECK(start.serving(device).budget->idle_budget().count == MiB(62).count * 8 / 10);  // 64 less two models of 1 MiB
  }
  // The second device, of the same kind, has what the first has measured.
  CHECK(folder.size() == 2);
}

TEST_CASE("of several models the one at fault is named", "[model_loader]") {
  const ScratchFolder folder;
  Start start(folder);
  const ModelSpec second = PaddingSensitiveSpec(PaddingCheck::kRefuse, "Q");
  const absl::Status status = start.Load({start.Model(PaddingProofSpec()), start.Model(second)}).status();
  CHECK(std::string(status.message()).rfind("model 'Q': ", 0) == 0);
}

TEST_CASE("a thread is warmed by one run of the smallest batch", "[model_loader]") {
  ModelSpec fixed = ToySpec();
  fixed.inputs = {{.name = "x", .type = DataType::kFp32, .dims = {2}, .value_range = {}}};
  fixed.outputs = {{.name = "y", .type = DataType::kFp32, .dims = {2}}};
  for (const auto& [spec, shape] : {std::pair{PaddingProofSpec(), BatchShape{1, 32}}, {fixed, BatchShape{1, 0}}}) {
    const ScratchFolder folder;
    Start start(folder);
    const auto entries = start.Load({start.Model(spec)});
    REQUIRE(entries.ok());
    start.shapes_run.clear();
    WarmThread(*entries->front().model, entries->front().model->instances[0]);
    CHECK(start.shapes_run == std::vector<BatchShape>{shape});
  }
}

}  // namespace
}  // namespace headroom
