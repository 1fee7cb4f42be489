#include "batching/request.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace headroom {
namespace {

std::int64_t RowBytes(DataType type, const std::vector<std::int64_t>& dims, std::int64_t length) {
  std::int64_t bytes = SizeOf(type);
  for (const std::int64_t dim : dims) bytes *= dim == kSequenceAxis ? length : dim;
  return bytes;
}

}  // namespace

Request::Request(Parts parts) : parts_(std::move(parts)), output_length_(parts_.client_length), unfinished_(parts_.rows.size()) {
  bool truncated = false;
  std::int64_t longest_kept = 0;
  for (const Row& row : parts_.rows) {
    truncated = truncated || row.placement.kept_length < row.length;
    longest_kept = std::max(longest_kept, row.placement.kept_length);
  }
  if (truncated) output_length_ = longest_kept;
  for (const InputSpec& input : spec().inputs) {
    input_row_bytes_.push_back(RowBytes(input.type, input.dims, parts_.client_length));
  }
  for (const OutputSpec& output : spec().outputs) {
    output_row_bytes_.push_back(RowBytes(output.type, output.dims, output_length_));
  }
}

Request::~Request() {
  bool dropped = false;
  {
    MutexLock lock(mutex_);
    dropped = unfinished_ > 0;
  }
  assert(!dropped && "a request was dropped unfinished");
  if (!dropped || parts_.done == nullptr) return;
  Reply reply;
  reply.status = absl::InternalError("the request was lost inside the server");
  reply.outcome = Outcome::kFailed;
  parts_.done(std::move(reply));
}

Load Request::LoadOf(std::size_t row) const {
  const auto count = static_cast<std::int64_t>(parts_.rows.size());
  const RowWork& work = parts_.rows[row].work;
  return {1, {parts_.bytes.count / count}, work.compute, work.batch_millionths};
}

const std::byte* Request::InputRow(std::size_t input, std::size_t row) const {
  const std::byte* const data = parts_.inputs[input].data;
  return data == nullptr ? nullptr : data + static_cast<std::int64_t>(row) * input_row_bytes_[input];
}

std::byte* Request::OutputRow(std::size_t output, std::size_t row) {
  // Only now: outputs of rows that wait would cost memory for nothing.
  std::call_once(outputs_allocated_, [this] { AllocateOutputs(); });
  return reinterpret_cast<std::byte*>(outputs_[output].data()) + static_cast<std::int64_t>(row) * output_row_bytes_[output];
}

void Request::AllocateOutputs() {
  outputs_.resize(output_row_bytes_.size());
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (wants(i)) outputs_[i].assign(static_cast<std::size_t>(output_row_bytes_[i]) * parts_.rows.size(), '\0');
  }
}

void Request::Abandon() {
  parts_.done = nullptr;
  MutexLock lock(mutex_);
  unfinished_ = 0;
}

void Request::RowSucceeded(const RowReport& report) { FinishRow(absl::OkStatus(), Outcome::kOk, &report); }

void Request::RowFailed(absl::Status status, Outcome outcome) { FinishRow(std::move(status), outcome, nullptr); }

void Request::RowDropped() {
  // Where another row has failed, that failure stands: it was the first.
  FinishRow(absl::CancelledError("the client cancelled the request"), Outcome::kCancelled, nullptr);
}

void Request::FinishRow(absl::Status status, Outcome outcome, const RowReport* report) {
  Reply reply;
  {
    MutexLock lock(mutex_);
    assert(unfinished_ > 0 && "a row was finished twice");
    if (!status.ok() && failure_.ok()) {
      failure_ = std::move(status);
      outcome_ = outcome;
      gone_ = true;
    }
    if (report != nullptr) {
      report_.batch_rows = std::max(report_.batch_rows, report->batch_rows);
      report_.bucket = std::max(report_.bucket, report->bucket);
      report_.padded_length = std::max(report_.padded_length, report->padded_length);
      report_.queue = std::max(report_.queue, report->queue);
      report_.compute = std::max(report_.compute, report->compute);
      report_.estimated = std::max(report_.estimated, report->estimated);
      report_.retries = std::max(report_.retries, report->retries);
      report_.collate = std::max(report_.collate, report->collate);
      report_.scatter = std::max(report_.scatter, report->scatter);
    }
    if (--unfinished_ > 0) return;
    reply.status = failure_;
    reply.outcome = outcome_;
    reply.report = report_;
  }
  if (reply.status.ok()) {
    reply.outputs = std::move(outputs_);
    for (const OutputSpec& output : spec().outputs) {
      std::vector<std::int64_t> shape;
      if (spec().has_batch_dimension()) shape.push_back(static_cast<std::int64_t>(parts_.rows.size()));
      for (const std::int64_t dim : output.dims) shape.push_back(dim == kSequenceAxis ? output_length_ : dim);
      reply.shapes.push_back(std::move(shape));
    }
  }
  // Moved out first: `done` may drop what this request refers to.
  auto done = std::exchange(parts_.done, nullptr);
  if (done != nullptr) done(std::move(reply));
}

}  // namespace headroom
