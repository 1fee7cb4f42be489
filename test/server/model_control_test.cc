#include "server/model_control.h"

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "test/fakes/fake_device.h"
#include "test/fakes/recording_observer.h"
#include "test/fakes/toy_request.h"
#include "test/server/scratch_folder.h"

namespace headroom {
namespace {

constexpr const char* kConfig = R"(backend: "pytorch" max_batch_size: 8
input [ { name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] role: TOKENS value_range { min: 0 max: 999 } },
        { name: "attention_mask" data_type: TYPE_INT64 dims: [ -1 ] role: MASK optional: true } ]
output [ { name: "row" data_type: TYPE_FP32 dims: [ 4 ] } ]
sequence { buckets: [ 32, 64 ] padding: BUCKET padding_check: OFF }
)";

// A repository on disk, fake devices, and one worker.
class Control {
 public:
  explicit Control(Bytes total = MiB(64)) {
    FakeDevice::Options of_device;
    of_device.total = total;
    auto serving = std::make_unique<ServingDevice>();
    serving->device = std::make_unique<FakeDevice>(of_device);
    serving->budget = std::make_unique<MemoryBudget>(*serving->device, 0.8);
    devices_.push_back(std::move(serving));
    CHECK(devices_.front()->budget->MarkAtRest().ok());
    options_.model_repository = folder_.path();
    worker_ = std::jthread([this](const std::stop_token& stop) {
      Batcher(*devices_.front(), catalog_.models(), observer_, work_, RealClock()).Run(stop);
    });
  }
  ~Control() { worker_.request_stop(); }
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  void WriteModel(const std::string& name, std::int64_t version, Bytes size = KiB(1)) {
    const std::filesystem::path folder = std::filesystem::path(folder_.path()) / name;
    std::filesystem::create_directories(folder / std::to_string(version));
    std::ofstream(folder / "config.pbtxt") << "name: \"" << name << "\" " << kConfig;
    std::ofstream(folder / std::to_string(version) / "model.pt") << std::string(static_cast<std::size_t>(size.count), 'x');
  }

  std::int64_t ServedVersion(const std::string& name) {
    const auto entry = catalog_.Find(name, "");
    return entry.ok() ? entry->model->version : 0;
  }
  ToyRequest Ask(const ServedModel& model, const std::vector<Ids>& rows) {
    ToyRequestOptions asked;
    asked.arrived = RealClock().Now();
    ToyRequest made = MakeToyRequest(model.spec, model.instances.front().ladder, rows, asked);
    CHECK(model.queue.Enqueue(made.request).ok());
    work_.Notify();
    return made;
  }
  FakeDevice& device() { return static_cast<FakeDevice&>(*devices_.front()->device); }
  MemoryBudget& budget() { return *devices_.front()->budget; }
  const ModelCatalog& catalog() const { return catalog_; }

 private:
  const ScratchFolder folder_;
  std::vector<std::unique_ptr<ServingDevice>> devices_;
  ModelOptions options_;
  ModelRegistry registry_;
  ModelCatalog catalog_;
  RecordingObserver observer_;
  WorkSignal work_;
  std::jthread worker_;

 public:
  std::vector<std::string> announced;
  ModelControl control{{options_, devices_, registry_, catalog_, work_, RealClock(), {}, [this](const ServedModel& model) {
                          announced.push_back(absl::StrCat(model.spec->name, " ", model.version));
                        }}};
};

TEST_CASE("a model that was added to the repository is loaded, answers, and is unloaded again", "[model_control]") {
  Control with;
  with.WriteModel("P", 1);
  const Bytes at_rest = with.device().in_use();
  REQUIRE(with.control.Load("P").ok());
  CHECK(with.announced == std::vector<std::string>{"P 1"});
  CHECK(with.device().in_use() == at_rest + MiB(1));
  CHECK(with.budget().Snapshot().value().reserved == Bytes{0});
  {
    const CatalogEntry entry = with.catalog().Find("P", "").value();
    CHECK(with.Ask(*entry.model, {Row(20)}).answer->status().ok());
  }
  const Bytes budget = with.budget().Snapshot().value().budget;
  REQUIRE(with.control.Unload("P").ok());
  CHECK(with.ServedVersion("P") == 0);
  CHECK(with.device().in_use() == at_rest);
  CHECK(with.budget().Snapshot().value().budget > budget);
  CHECK(with.catalog().models().All()->empty());
  CHECK(with.control.Unload("P").ok());  // nothing to do
}

TEST_CASE("loading what is served changes nothing; a new version replaces the old one whole", "[model_control]") {
  Control with;
  with.WriteModel("P", 1);
  REQUIRE(with.control.Load("P").ok());
  REQUIRE(with.control.Load("P").ok());
  CHECK(with.device().loads() == 1);
  with.WriteModel("P", 3);
  CHECK(with.ServedVersion("P") == 1);
  REQUIRE(with.control.Load("P").ok());
  CHECK(with.ServedVersion("P") == 3);
  CHECK(with.device().in_use() == MiB(1));
  CHECK(with.catalog().models().All()->size() == 1);
  CHECK(with.announced == std::vector<std::string>{"P 1", "P 3"});
}

TEST_CASE("rows that wait for the version that is replaced are answered, once", "[model_control]") {
  Control with;
  with.WriteModel("P", 1);
  REQUIRE(with.control.Load("P").ok());
  std::vector<ToyRequest> asked;
  {
    const CatalogEntry old = with.catalog().Find("P", "").value();
    for (int i = 0; i < 50; ++i) asked.push_back(with.Ask(*old.model, {Row(20, i)}));
  }
  with.WriteModel("P", 2);
  REQUIRE(with.control.Load("P").ok());
  for (const ToyRequest& toy : asked) {
    CHECK(toy.answer->status().ok());
    CHECK(toy.answer->times() == 1);
  }
}

TEST_CASE("budget first: what does not fit beside the served model is refused before it is loaded", "[model_control]") {
  Control with(MiB(8));
  with.WriteModel("P", 1);
  REQUIRE(with.control.Load("P").ok());
  // The weights leave 7 MiB, of which batches may hold 5.6; one row of 64 takes 128 KiB.
  with.WriteModel("P", 2, MiB(6));
  const absl::Status status = with.control.Load("P");
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(status.message()), Catch::Contains("'P'") && Catch::Contains(std::to_string(MiB(6).count)));
  CHECK(with.device().loads() == 1);
  CHECK(with.ServedVersion("P") == 1);
  CHECK(with.budget().Snapshot().value().reserved == Bytes{0});
}

TEST_CASE("a load that fails leaves everything as it was", "[model_control]") {
  Control with;
  with.WriteModel("P", 1);
  REQUIRE(with.control.Load("P").ok());
  const BudgetSnapshot before = with.budget().Snapshot().value();
  with.WriteModel("P", 2);
  SECTION("where the file is no model") {
    with.device().on_load = [] { return absl::InvalidArgumentError("not a module"); };
    CHECK(with.control.Load("P").code() == absl::StatusCode::kInvalidArgument);
  }
  SECTION("where it fails in warm-up") {
    with.device().fail_run = [](const PaddedBatch&) { return FakeDevice::Failure(ModelError{"boom"}); };
    CHECK(with.control.Load("P").code() == absl::StatusCode::kFailedPrecondition);
    with.device().fail_run = [](const PaddedBatch&) { return std::nullopt; };
  }
  CHECK(with.ServedVersion("P") == 1);
  CHECK(with.device().in_use() == MiB(1));
  const BudgetSnapshot after = with.budget().Snapshot().value();
  CHECK(after.budget == before.budget);
  CHECK(after.reserved == Bytes{0});
  const CatalogEntry entry = with.catalog().Find("P", "").value();
  CHECK(with.Ask(*entry.model, {Row(20)}).answer->status().ok());
}

TEST_CASE("names that are none, or are not there, are not found", "[model_control]") {
  Control with;
  with.WriteModel("P", 1);
  for (const char* const name : {"", "..", "../P", "Q", "P/1"}) {
    CAPTURE(name);
    CHECK(with.control.Load(name).code() == absl::StatusCode::kNotFound);
    CHECK(with.control.Unload(name).code() == absl::StatusCode::kNotFound);
  }
}

TEST_CASE("the index tells what is in the repository and what of it is served", "[model_control]") {
  Control with;
  with.WriteModel("P", 1);
  with.WriteModel("Q", 4);
  REQUIRE(with.control.Load("Q").ok());
  const std::vector<IndexEntry> index = with.control.Index().value();
  REQUIRE(index.size() == 2);
  CHECK(index[0].name == "P");
  CHECK_FALSE(index[0].ready);
  CHECK(index[0].version == 0);
  CHECK_FALSE(index[0].reason.empty());
  CHECK(index[1].name == "Q");
  CHECK(index[1].ready);
  CHECK(index[1].version == 4);
}

}  // namespace
}  // namespace headroom
