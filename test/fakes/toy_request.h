// Requests to the toy model P, made of lists of ids, and what they were answered.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "batching/request.h"

namespace headroom {

using Ids = std::vector<std::int64_t>;

// A row of `length` ids of value `id`.
inline Ids Row(std::int64_t length, std::int64_t id = 1) { return Ids(static_cast<std::size_t>(length), id); }

// The toy model P: per row the mask count, the sum of the masked ids, the padded length and the rows of the batch.
inline ModelSpec ToySpec(std::string name = "P") {
  ModelSpec spec;
  spec.name = std::move(name);
  spec.max_batch_rows = 8;
  spec.inputs = {{.name = "input_ids",
                  .type = DataType::kInt64,
                  .dims = {kSequenceAxis},
                  .role = InputRole::kTokens,
                  .value_range = ValueRange{0, 999}},
                 {.name = "attention_mask",
                  .type = DataType::kInt64,
                  .dims = {kSequenceAxis},
                  .role = InputRole::kMask,
                  .optional = true,
                  .value_range = {}}};
  spec.outputs = {{.name = "row", .type = DataType::kFp32, .dims = {4}}};
  spec.sequence.padding = Padding::kBucket;
  return spec;
}

// Given once by the request, read by the test.
class Answer {
 public:
  void Give(Reply reply) {
    MutexLock lock(mutex_);
    ++times_;
    reply_ = std::move(reply);
    given_.NotifyAll();
  }
  int times() const {
    MutexLock lock(mutex_);
    return times_;
  }
  bool given() const { return times() > 0; }
  // Waits for the reply; throws where none comes, so that a test fails and does not hang.
  Reply Await() const {
    const TimePoint patience = RealClock().Now() + std::chrono::seconds(30);
    MutexLock lock(mutex_);
    while (!reply_) {
      if (!RealClock().WaitUntil(mutex_, given_, patience)) throw std::logic_error("the request is not answered");
    }
    return *reply_;
  }
  absl::Status status() const { return Await().status; }
  Outcome outcome() const { return Await().outcome; }
  // The numbers of an FP32 output.
  std::vector<float> Floats(std::size_t output = 0) const {
    const Reply reply = Await();
    std::vector<float> numbers;
    if (output >= reply.outputs.size()) return numbers;
    const std::string& bytes = reply.outputs[output];
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
      numbers.push_back(static_cast<float>(LoadElement(DataType::kFp32, reinterpret_cast<const std::byte*>(&bytes[at]))));
    }
    return numbers;
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar given_;
  int times_ GUARDED_BY(mutex_) = 0;
  std::optional<Reply> reply_ GUARDED_BY(mutex_);
};

struct ToyRequestOptions {
  std::int64_t priority = 0;
  CallerId caller = 0;
  Bytes bytes{0};
  TimePoint arrived{};
  TimePoint deadline = kForever;
  std::int64_t client_length = 0;               // 0: of the longest row; rows are padded to it with the id 777, masked out
  std::vector<Ids> mask = {};                   // as the client sent it; empty: left out
  std::vector<bool> wanted_outputs = {};        // empty: all
  std::function<void()> before_answer = [] {};  // called where the request is answered, first
};

struct ToyRequest {
  std::shared_ptr<Request> request;
  std::shared_ptr<Answer> answer = std::make_shared<Answer>();
};

// A request of `rows` to P, placed by `ladder`.
inline ToyRequest MakeToyRequest(const std::shared_ptr<const ModelSpec>& spec, const BucketLadder& ladder,
                                 const std::vector<Ids>& rows, const ToyRequestOptions& options = {}) {
  constexpr std::int64_t kPadding = 777;
  struct Sent {
    Ids ids;
    Ids mask;
  };
  auto sent = std::make_shared<Sent>();
  ToyRequest made;
  Request::Parts parts;
  parts.spec = spec;
  parts.client_length = options.client_length;
  for (const Ids& row : rows) {
    parts.client_length = std::max(parts.client_length, static_cast<std::int64_t>(row.size()));
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto length = static_cast<std::int64_t>(rows[i].size());
    parts.rows.push_back({length, ladder.Place(length).value()});
    const auto padding = static_cast<std::size_t>(parts.client_length - length);
    sent->ids.insert(sent->ids.end(), rows[i].begin(), rows[i].end());
    sent->ids.insert(sent->ids.end(), padding, kPadding);
    if (options.mask.empty()) continue;
    sent->mask.insert(sent->mask.end(), options.mask[i].begin(), options.mask[i].end());
    sent->mask.insert(sent->mask.end(), padding, 0);
  }
  parts.inputs.push_back({reinterpret_cast<const std::byte*>(sent->ids.data())});
  if (spec->inputs.size() > 1) {
    parts.inputs.push_back({options.mask.empty() ? nullptr : reinterpret_cast<const std::byte*>(sent->mask.data())});
  }
  parts.wanted_outputs = options.wanted_outputs;
  parts.priority = options.priority;
  parts.caller = options.caller;
  parts.bytes = options.bytes;
  parts.arrived = options.arrived;
  parts.deadline = options.deadline;
  parts.done = [sent, answer = made.answer, before = options.before_answer](Reply reply) {
    before();
    answer->Give(std::move(reply));
  };
  made.request = std::make_shared<Request>(std::move(parts));
  return made;
}

}  // namespace headroom
