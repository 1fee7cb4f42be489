// Keeps what batching tells.
#pragma once

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/sync.h"
#include "batching/batch_observer.h"

namespace headroom {

// Thread-safe.
class RecordingObserver final : public BatchObserver {
 public:
  struct Answered {
    std::string model;
    Outcome outcome = Outcome::kOk;
    std::int64_t rows = 0;
  };

  void RequestReceived(const std::string& model) override {
    MutexLock lock(mutex_);
    received_.push_back(model);
  }
  void RequestAnswered(const std::string& model, Outcome outcome, std::int64_t rows, Duration) override {
    MutexLock lock(mutex_);
    answered_.push_back({model, outcome, rows});
  }
  void TailRows(const std::string& model, TailTreatment treatment, std::int64_t rows) override {
    MutexLock lock(mutex_);
    tail_rows_.emplace_back(model, treatment, rows);
  }
  void BatchFinished(const BatchReport& report) override {
    MutexLock lock(mutex_);
    batches_.push_back(report);
  }
  void OutOfMemory(const std::string& model, const std::string& device) override {
    MutexLock lock(mutex_);
    out_of_memory_.emplace_back(model, device);
  }
  void BatchRetried(const std::string&, RetryReason reason) override {
    MutexLock lock(mutex_);
    retries_.push_back(reason);
  }
  void DeviceWasLost(const std::string& device, const std::string& why) override {
    MutexLock lock(mutex_);
    lost_.emplace_back(device, why);
  }

  std::vector<std::string> received() const { return Copy(received_); }
  std::vector<Answered> answered() const { return Copy(answered_); }
  std::vector<std::tuple<std::string, TailTreatment, std::int64_t>> tail_rows() const { return Copy(tail_rows_); }
  std::vector<BatchReport> batches() const { return Copy(batches_); }
  // (model, device)
  std::vector<std::pair<std::string, std::string>> out_of_memory() const { return Copy(out_of_memory_); }
  std::vector<RetryReason> retries() const { return Copy(retries_); }
  // (device, why)
  std::vector<std::pair<std::string, std::string>> lost() const { return Copy(lost_); }

 private:
  template <class T>
  T Copy(const T& kept) const {
    MutexLock lock(mutex_);
    return kept;
  }

  mutable Mutex mutex_;
  std::vector<std::string> received_;
  std::vector<Answered> answered_;
  std::vector<std::tuple<std::string, TailTreatment, std::int64_t>> tail_rows_;
  std::vector<BatchReport> batches_;
  std::vector<std::pair<std::string, std::string>> out_of_memory_;
  std::vector<RetryReason> retries_;
  std::vector<std::pair<std::string, std::string>> lost_;
};

}  // namespace headroom
