#include "metrics/prometheus_observer.h"

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "base/sync.h"
#include "metrics/model_series.h"
#include "metrics/state_gauges.h"

namespace headroom {
namespace {

template <class T>
void AddMissing(std::vector<T>& to, const std::vector<T>& from) {
  for (const T& value : from) {
    if (std::find(to.begin(), to.end(), value) == to.end()) to.push_back(value);
  }
}

}  // namespace

// The library throws only for names and labels that it does not take, which are the catalog's and are tested; so nothing is
// caught here.
class PrometheusObserver::Series {
 public:
  explicit Series(const std::string& version) { families_.build_info.At({version}).Set(1); }

  // The model's series, those of kUnknownModel where it was not added.
  std::shared_ptr<const ModelSeries> Of(const std::string& model) const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto found = models_.find(model);
    return found == models_.end() ? unknown_ : found->second;
  }

  void Add(ModelLabels labels) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    auto& series = models_[labels.model];
    if (series != nullptr) {
      AddMissing(labels.devices, series->labels().devices);
      AddMissing(labels.buckets, series->labels().buckets);
    }
    // Replaced whole, as other threads may be counting through the old one; both count into the same series.
    series = std::make_shared<const ModelSeries>(families_, std::move(labels));
  }

  void SetSource(StateSource source) EXCLUDES(source_mutex_) {
    MutexLock lock(source_mutex_);
    source_ = std::move(source);
  }

  std::string Page() const EXCLUDES(source_mutex_) {
    std::vector<prometheus::MetricFamily> families = registry_.Collect();
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
  prometheus::Registry registry_;
  const Families families_{registry_};
  const std::shared_ptr<const ModelSeries> unknown_ =
      std::make_shared<const ModelSeries>(families_, ModelLabels{kUnknownModel, {}, {}});

  mutable Mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const ModelSeries>> models_ GUARDED_BY(mutex_);

  mutable Mutex source_mutex_;
  StateSource source_ GUARDED_BY(source_mutex_);
};

PrometheusObserver::PrometheusObserver(const std::string& version) : series_(std::make_unique<Series>(version)) {}
PrometheusObserver::~PrometheusObserver() = default;

void PrometheusObserver::AddModel(const ModelLabels& labels) { series_->Add(labels); }
void PrometheusObserver::SetStateSource(StateSource source) { series_->SetSource(std::move(source)); }
std::string PrometheusObserver::Scrape() const { return series_->Page(); }

void PrometheusObserver::RequestReceived(const std::string& model) { series_->Of(model)->RequestReceived(); }
void PrometheusObserver::RequestAnswered(const std::string& model, Outcome outcome, std::int64_t rows, Duration took) {
  series_->Of(model)->RequestAnswered(outcome, rows, took);
}
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
