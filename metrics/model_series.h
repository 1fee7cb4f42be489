// The series of one model, found beforehand. For the metrics folder only: outside it nothing knows the Prometheus library.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/sync.h"
#include "batching/batch_observer.h"
#include "metrics/metric_catalog.h"
#include "metrics/model_totals.h"
#include "metrics/prometheus_observer.h"

namespace headroom {

// A family of the catalog. Its series are made when they are first asked for and never removed, so that references to them stay
// valid as long as the registry. Thread-safe.
template <class T>
class FamilyOf {
 public:
  FamilyOf(prometheus::Registry& registry, Metric metric)
      : definition_(DefinitionOf(metric)), family_(Register(registry, definition_)) {}

  // The series with these values of the definition's labels.
  T& At(const std::vector<std::string>& values) const {
    prometheus::Labels labels;
    for (std::size_t i = 0; i < values.size(); ++i) labels[definition_.labels.at(i)] = values[i];
    if constexpr (std::is_same_v<T, prometheus::Histogram>) {
      return family_.Add(labels, definition_.bounds);
    } else {
      return family_.Add(labels);
    }
  }

 private:
  static prometheus::Family<T>& Register(prometheus::Registry& registry, const MetricDefinition& definition) {
    if constexpr (std::is_same_v<T, prometheus::Histogram>) {
      return prometheus::BuildHistogram().Name(definition.name).Help(definition.help).Register(registry);
    } else if constexpr (std::is_same_v<T, prometheus::Counter>) {
      return prometheus::BuildCounter().Name(definition.name).Help(definition.help).Register(registry);
    } else {
      return prometheus::BuildGauge().Name(definition.name).Help(definition.help).Register(registry);
    }
  }

  const MetricDefinition& definition_;
  prometheus::Family<T>& family_;
};

// The families that are counted into; gauges of the server's state are state_gauges' business. Thread-safe.
struct Families {
  explicit Families(prometheus::Registry& in) : registry(in) {}

  prometheus::Registry& registry;
  FamilyOf<prometheus::Counter> received{registry, Metric::kRequestsReceived};
  FamilyOf<prometheus::Counter> requests{registry, Metric::kRequests};
  FamilyOf<prometheus::Counter> rows{registry, Metric::kRows};
  FamilyOf<prometheus::Counter> tail_rows{registry, Metric::kTailRows};
  FamilyOf<prometheus::Counter> load_refusals{registry, Metric::kLoadRefusals};
  FamilyOf<prometheus::Counter> late_starts{registry, Metric::kLateStarts};
  FamilyOf<prometheus::Counter> batches{registry, Metric::kBatches};
  FamilyOf<prometheus::Histogram> batch_rows{registry, Metric::kBatchRows};
  FamilyOf<prometheus::Counter> splits{registry, Metric::kBatchSplits};
  FamilyOf<prometheus::Counter> wide_runs{registry, Metric::kWideRuns};
  FamilyOf<prometheus::Counter> useful_tokens{registry, Metric::kUsefulTokens};
  FamilyOf<prometheus::Counter> padding_tokens{registry, Metric::kPaddingTokens};
  FamilyOf<prometheus::Counter> out_of_memory{registry, Metric::kOutOfMemory};
  FamilyOf<prometheus::Counter> retries{registry, Metric::kBatchRetries};
  FamilyOf<prometheus::Counter> underestimates{registry, Metric::kMemoryUnderestimates};
  FamilyOf<prometheus::Histogram> estimate_ratio{registry, Metric::kMemoryEstimateRatio};
  FamilyOf<prometheus::Histogram> queue_seconds{registry, Metric::kQueueSeconds};
  FamilyOf<prometheus::Histogram> compute_seconds{registry, Metric::kComputeSeconds};
  FamilyOf<prometheus::Histogram> request_seconds{registry, Metric::kRequestSeconds};
  FamilyOf<prometheus::Gauge> build_info{registry, Metric::kBuildInfo};
};

// What statistics tell of a model beside what the page's series know. Thread-safe.
class ModelTally {
 public:
  void RequestServed(const ServedRequest& request) EXCLUDES(mutex_);
  void RequestAnswered(Outcome outcome, Duration took) EXCLUDES(mutex_);
  void BatchFinished(const BatchReport& report) EXCLUDES(mutex_);
  // Only what it keeps: no counts of requests, rows or batches.
  ModelTotals Kept() const EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  ModelTotals kept_ GUARDED_BY(mutex_);
};

// Counts for one model with plain increments: no label is looked up but among the model's few devices and buckets. Constant after
// construction; thread-safe.
class ModelSeries {
 public:
  // Makes all series that `labels` tells of; those that exist already keep their counts. `families` outlives this object. `tally`
  // is that of the model's series before, or a new one.
  ModelSeries(const Families& families, ModelLabels labels, std::shared_ptr<ModelTally> tally);

  void RequestReceived() const { received_.Increment(); }
  void RequestAnswered(Outcome outcome, std::int64_t rows, Duration took) const;
  void RequestServed(const ServedRequest& request) const { tally_->RequestServed(request); }
  void RefusedForLoad(LoadReason reason) const;
  void TailRows(TailTreatment treatment, std::int64_t rows) const;
  void BatchFinished(const BatchReport& report) const;
  void OutOfMemory(const std::string& device) const;
  void BatchRetried(RetryReason reason) const;

  const ModelLabels& labels() const { return labels_; }
  const std::shared_ptr<ModelTally>& tally() const { return tally_; }

  // All that was counted, of whatever version.
  ModelTotals Totals() const;
  // Requests received and not yet answered.
  std::int64_t pending() const;
  // Of the tokens computed, those within rows' true lengths; nothing where none was computed.
  std::optional<double> useful_share() const;

 private:
  static constexpr std::size_t kTreatments = static_cast<std::size_t>(TailTreatment::kRefused) + 1;
  static constexpr std::size_t kLoadReasons = static_cast<std::size_t>(LoadReason::kShare) + 1;
  static constexpr std::size_t kOutcomes = static_cast<std::size_t>(Outcome::kFailed) + 1;

  struct OnDevice {
    std::string device;
    prometheus::Counter* out_of_memory = nullptr;
    prometheus::Counter* underestimates = nullptr;
    prometheus::Histogram* estimate_ratio = nullptr;
    std::vector<std::pair<std::int64_t, prometheus::Counter*>> batches;  // by bucket
  };
  const OnDevice* Find(const std::string& device) const;
  prometheus::Counter& BatchesOf(const OnDevice* on_device, std::int64_t bucket) const;

  const Families& families_;
  const ModelLabels labels_;
  const std::shared_ptr<ModelTally> tally_;
  prometheus::Counter& received_;
  prometheus::Counter& late_starts_;
  std::array<prometheus::Counter*, kLoadReasons> load_refusals_{};
  std::array<prometheus::Counter*, kOutcomes> requests_{};
  std::array<prometheus::Counter*, kOutcomes> rows_{};
  std::array<prometheus::Counter*, kTreatments> tail_rows_{};
  prometheus::Histogram& batch_rows_;
  prometheus::Counter& row_splits_;
  prometheus::Counter& memory_splits_;
  prometheus::Counter& memory_retries_;
  prometheus::Counter& error_retries_;
  prometheus::Counter& wide_runs_;
  prometheus::Counter& useful_tokens_;
  prometheus::Counter& padding_tokens_;
  prometheus::Histogram& queue_seconds_;
  prometheus::Histogram& compute_seconds_;
  prometheus::Histogram& request_seconds_;
  std::vector<OnDevice> devices_;
};

}  // namespace headroom
