// Counts what batching tells, and serves the metrics page in Prometheus' text format.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batching/batch_observer.h"
#include "memory/memory_budget.h"
#include "metrics/model_totals.h"

namespace headroom {

// What the gauges show. It is asked for at each scrape, so that no figure is kept in two places.
struct ServerState {
  struct Queue {
    std::string model;
    std::int64_t waiting_rows = 0;
    Bytes waiting_bytes{0};
    Duration predicted_wait{0};
  };
  struct Model {
    std::string model;
    std::int64_t version = 0;
    bool ready = false;
  };
  // A figure of memory at rest: "allocated" or "held" of a device, or "resident" of the process, whose device is "host".
  struct MemorySeries {
    struct Leak {
      double bytes_per_call = 0;
      double confidence = 0;  // 0 to 1
      bool found = false;
    };
    std::string device;
    std::string memory;
    Bytes baseline{0};
    Bytes at_rest{0};
    std::optional<Leak> leak;  // none until enough has been seen
  };
  // What a model added to what is at rest.
  struct ModelMemory {
    std::string model;
    std::int64_t version = 0;
    std::string device;
    std::string memory;  // as MemorySeries'
    Bytes bytes{0};
  };
  // What batches have taught of a bucket's estimates on a device.
  struct Margin {
    std::string model;
    std::string device;
    std::int64_t bucket = 0;
    double factor = 1;  // reserved ÷ estimated
  };
  // Shapes that are held to fewer rows since they ran out of memory.
  struct Ceilings {
    std::string model;
    std::string device;
    std::int64_t shapes = 0;
  };
  // What a model computes in on a device, and how far that is from FP32.
  struct ModelPrecision {
    std::string model;
    std::string device;
    std::string precision;
    double min_cosine = 1;
    double max_error = 0;
  };
  struct Exhaustion {
    std::string device;
    double seconds = 0;  // may be infinite
  };
  // What is held of the memory of one stage that requests pass.
  struct Stage {
    std::string stage;  // request, queue, staging, device, reply
    Bytes bytes{0};
  };
  struct DeviceState {
    std::string device;
    bool computes = true;                  // false on a dry card
    std::int64_t model_loads = 0;          // Device::loads()
    std::optional<BudgetSnapshot> memory;  // none where the device does not tell: its memory gauges are then absent, not 0
    std::int64_t degradation = 0;          // 0: none; 1 to 4: DegradationLevel
  };
  std::vector<Queue> queues;         // each model once
  std::vector<Model> models;         // each model and version once
  std::vector<DeviceState> devices;  // each device once
  std::vector<MemorySeries> memory = {};
  std::vector<ModelMemory> model_memory = {};
  std::vector<Margin> margins = {};
  std::vector<Ceilings> ceilings = {};
  std::vector<ModelPrecision> precisions = {};
  std::vector<Exhaustion> exhaustion = {};  // absent while it cannot be told
  std::vector<Stage> stages = {};           // those that are accounted for
  std::optional<Bytes> resident = {};       // of the process, pages of files included
  std::int64_t breaker_open_callers = 0;
  std::int64_t breaker_refusals = 0;  // only rises
  // Whether a threshold of readiness is passed, each once.
  struct Strain {
    std::string threshold;
    bool passed = false;
  };
  bool ready = false;  // as health says
  std::vector<Strain> strains = {};
  std::int64_t connections = 0;
  std::int64_t refused_connections = 0;  // only rises
  // True lengths of the rows of a model of variable length, admitted so far: length → rows. Each model once.
  struct Lengths {
    std::string model;
    std::vector<std::pair<std::int64_t, std::int64_t>> rows;  // ascending in length
  };
  // What is best of as many buckets as a model has, on the traffic that it had.
  struct Ladder {
    std::string model;
    double saves = 0;                    // of the tokens computed, the share that would not be
    std::vector<std::int64_t> proposed;  // ascending
  };
  std::vector<Lengths> lengths = {};
  std::vector<Ladder> ladders = {};  // of models that pad to their buckets, once enough is known
};

// Called while a page is made, on the thread that asks for it.
using StateSource = std::function<ServerState()>;

// A model's label values that are known beforehand.
struct ModelLabels {
  std::string model;
  std::vector<std::string> devices;
  std::vector<std::int64_t> buckets;  // values of BatchReport::bucket: {0} for fixed shapes
  std::int64_t version = 0;           // the one that is served from now on
};

// The label value of a device or bucket that was not announced for its model.
inline constexpr const char* kOtherLabel = "(other)";

// Thread-safe. Series stay as few as the models, devices and buckets that were announced: an event of a model that was not is
// counted under kUnknownModel, one of a device or bucket that was not under kOtherLabel. Counts only rise.
class PrometheusObserver : public BatchObserver {
 public:
  // `version`: the program's, for headroom_build_info. The series of kUnknownModel exist from the start.
  explicit PrometheusObserver(const std::string& version);
  ~PrometheusObserver() override;

  // Makes the series of a model, at 0. Called again, as for a new version of it, adds what is new and keeps what was counted. What
  // is told of the model from now on counts for this version, which is not told apart otherwise: a request that the version
  // before still answers counts for this one too.
  void AddModel(const ModelLabels& labels);

  // Where the gauges come from; until then, and after SetStateSource(nullptr), they are absent. When it returns, the source before
  // it is no longer in use. Do not call it from a source.
  void SetStateSource(StateSource source);

  // The page.
  std::string Scrape() const;

  // What was counted while this version was the one served; zeros for one that was never announced.
  ModelTotals TotalsOf(const std::string& model, std::int64_t version) const;

  void RequestReceived(const std::string& model) override;
  void RequestAnswered(const std::string& model, Outcome outcome, std::int64_t rows, Duration took) override;
  void RequestServed(const std::string& model, const ServedRequest& request) override;
  void RefusedForLoad(const std::string& model, LoadReason reason) override;
  void TailRows(const std::string& model, TailTreatment treatment, std::int64_t rows) override;
  void BatchFinished(const BatchReport& report) override;
  void OutOfMemory(const std::string& model, const std::string& device) override;
  void BatchRetried(const std::string& model, RetryReason reason) override;
  // Counts nothing: the process is about to end, and readiness says it meanwhile.
  void DeviceWasLost(const std::string& device, const std::string& why) override;

 private:
  class Series;
  const std::unique_ptr<Series> series_;
};

}  // namespace headroom
