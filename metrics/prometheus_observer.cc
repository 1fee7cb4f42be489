#include "metrics/prometheus_observer.h"

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/sync.h"
#include "metrics/family_builder.h"
#include "metrics/model_series.h"
#include "metrics/state_gauges.h"
#include "metrics/triton_series.h"

namespace headroom {
namespace {

template <class T>
void AddMissing(std::vector<T>& to, const std::vector<T>& from) {
  for (const T& value : from) {
    if (std::find(to.begin(), to.end(), value) == to.end()) to.push_back(value);
  }
}

}  // namespace

// What of a model's totals belongs to which version. They are counted once, for all versions; where one takes the place of another
// a line is drawn.
class VersionLines {
 public:
  // From now on, when `totals` have been counted, it is this version's turn.
  void Begin(std::int64_t version, const ModelTotals& totals) {
    if (version == served_) return;
    if (served_) past_[*served_] += Since(totals);
    served_ = version;
    began_ = totals;
  }

  std::optional<std::int64_t> served() const { return served_; }

  // Each version with its part of `totals`.
  std::map<std::int64_t, ModelTotals> Split(const ModelTotals& totals) const {
    std::map<std::int64_t, ModelTotals> split = past_;
    if (served_) split[*served_] += Since(totals);
    return split;
  }

 private:
  ModelTotals Since(ModelTotals totals) const { return totals -= began_; }

  std::optional<std::int64_t> served_;
  ModelTotals began_;                         // what had been counted when it began
  std::map<std::int64_t, ModelTotals> past_;  // of earlier turns
};

// The library throws only for names and labels that it does not take, which are the catalog's and are tested; so nothing is
// caught here.
class PrometheusObserver::Series {
 public:
  explicit Series(const std::string& version) { families_.build_info.At({version}).Set(1); }

  // The model's series, those of kUnknownModel where it was not added.
  std::shared_ptr<const ModelSeries> Of(const std::string& model) const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto found = models_.find(model);
    return found == models_.end() ? unknown_ : found->second.series;
  }

  void Add(ModelLabels labels) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    auto& [series, lines] = models_[labels.model];
    auto tally = series != nullptr ? series->tally() : std::make_shared<ModelTally>();
    if (series != nullptr) {
      AddMissing(labels.devices, series->labels().devices);
      AddMissing(labels.buckets, series->labels().buckets);
    }
    const std::int64_t version = labels.version;
    // Replaced whole, as other threads may be counting through the old one; both count into the same series.
    series = std::make_shared<const ModelSeries>(families_, std::move(labels), std::move(tally));
    lines.Begin(version, series->Totals());
  }

  ModelTotals TotalsOf(const std::string& model, std::int64_t version) const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto found = models_.find(model);
    if (found == models_.end()) return {};
    const auto& [series, lines] = found->second;
    return lines.Split(series->Totals())[version];
  }

  void SetSource(StateSource source) EXCLUDES(source_mutex_) {
    MutexLock lock(source_mutex_);
    source_ = std::move(source);
  }

  std::string Page() const EXCLUDES(source_mutex_) {
    std::vector<prometheus::MetricFamily> families = registry_.Collect();
    std::vector<prometheus::MetricFamily> triton = TritonFamilies(Versions());
    std::move(triton.begin(), triton.end(), std::back_inserter(families));
    UsefulShares().AppendTo(families);
    {
      // Held while the source runs, so that SetSource returns only when the one before is no longer in use.
      MutexLock lock(source_mutex_);
      if (source_) {
        std::vector<prometheus::MetricFamily> gauges = GaugesOf(source_());
        std::move(gauges.begin(), gauges.end(), std::back_inserter(families));
      }
    }
    return prometheus::TextSerializer().Serialize(families);
  }

 private:
  struct Model {
    std::shared_ptr<const ModelSeries> series;
    VersionLines lines;
  };

  std::vector<VersionTotals> Versions() const EXCLUDES(mutex_) {
    std::vector<VersionTotals> versions = {{kUnknownModel, kUnknownModel, unknown_->Totals(), unknown_->pending()}};
    MutexLock lock(mutex_);
    for (const auto& [name, model] : models_) {
      const std::int64_t pending = model.series->pending();
      for (auto& [version, totals] : model.lines.Split(model.series->Totals())) {
        auto& told = versions.emplace_back(VersionTotals{name, std::to_string(version), std::move(totals), std::nullopt});
        if (version == model.lines.served()) told.pending = pending;
      }
    }
    return versions;
  }

  FamilyBuilder UsefulShares() const EXCLUDES(mutex_) {
    FamilyBuilder shares(Metric::kUsefulTokenShare);
    MutexLock lock(mutex_);
    for (const auto& [name, model] : models_) {
      if (const auto share = model.series->useful_share()) shares.AddDouble({name}, *share);
    }
    return shares;
  }

  prometheus::Registry registry_;
  const Families families_{registry_};
  const std::shared_ptr<const ModelSeries> unknown_ =
      std::make_shared<const ModelSeries>(families_, ModelLabels{kUnknownModel, {}, {}}, std::make_shared<ModelTally>());

  mutable Mutex mutex_;
  std::unordered_map<std::string, Model> models_ GUARDED_BY(mutex_);

  mutable Mutex source_mutex_;
  StateSource source_ GUARDED_BY(source_mutex_);
};

PrometheusObserver::PrometheusObserver(const std::string& version) : series_(std::make_unique<Series>(version)) {}
PrometheusObserver::~PrometheusObserver() = default;

void PrometheusObserver::AddModel(const ModelLabels& labels) { series_->Add(labels); }
void PrometheusObserver::SetStateSource(StateSource source) { series_->SetSource(std::move(source)); }
std::string PrometheusObserver::Scrape() const { return series_->Page(); }

ModelTotals PrometheusObserver::TotalsOf(const std::string& model, std::int64_t version) const {
  return series_->TotalsOf(model, version);
}

void PrometheusObserver::RequestReceived(const std::string& model) { series_->Of(model)->RequestReceived(); }
void PrometheusObserver::RequestAnswered(const std::string& model, Outcome outcome, std::int64_t rows, Duration took) {
  series_->Of(model)->RequestAnswered(outcome, rows, took);
}
void PrometheusObserver::RequestServed(const std::string& model, const ServedRequest& request) {
  series_->Of(model)->RequestServed(request);
}
void PrometheusObserver::RefusedForLoad(const std::string& model, LoadReason reason) { series_->Of(model)->RefusedForLoad(reason); }

void PrometheusObserver::TailRows(const std::string& model, TailTreatment treatment, std::int64_t rows) {
  series_->Of(model)->TailRows(treatment, rows);
}
void PrometheusObserver::BatchFinished(const BatchReport& report) { series_->Of(report.model)->BatchFinished(report); }
void PrometheusObserver::OutOfMemory(const std::string& model, const std::string& device) {
  series_->Of(model)->OutOfMemory(device);
}
void PrometheusObserver::BatchRetried(const std::string& model, RetryReason reason) { series_->Of(model)->BatchRetried(reason); }
void PrometheusObserver::DeviceWasLost(const std::string&, const std::string&) {}

}  // namespace headroom
