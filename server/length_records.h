// The histograms of true lengths, by model: a version that takes another's place counts on.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/sync.h"
#include "batching/length_histogram.h"

namespace headroom {

// Thread-safe. Keeps one for each name that was ever loaded.
class LengthRecords {
 public:
  std::shared_ptr<LengthHistogram> Of(const std::string& model) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    std::shared_ptr<LengthHistogram>& histogram = histograms_[model];
    if (histogram == nullptr) histogram = std::make_shared<LengthHistogram>();
    return histogram;
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<LengthHistogram>> histograms_ GUARDED_BY(mutex_);
};

}  // namespace headroom
