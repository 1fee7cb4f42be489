// From a repository's models to models that can be served: loaded once a device, warmed, measured, checked.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <stop_token>
#include <vector>

#include "batching/served_model.h"
#include "runtime/model_registry.h"
#include "server/length_records.h"
#include "server/model_catalog.h"
#include "server/model_repository.h"
#include "server/options.h"

namespace headroom {

// Everything that is to be served, ready. Models that are served already go on: each run made here has its device to itself, and
// memory at rest is marked anew. Logs its progress. `totals` bounds their queues together; lengths are counted in `lengths`, null:
// of each version by itself. An error names the model and what is wrong with it. CANCELLED once `stop` is asked for.
absl::StatusOr<std::vector<CatalogEntry>> LoadModels(const std::vector<RepositoryModel>& models,
                                                     const std::vector<std::unique_ptr<ServingDevice>>& devices,
                                                     ModelRegistry& registry, const ModelOptions& options,
                                                     const std::stop_token& stop, QueueTotals* totals = nullptr,
                                                     LengthRecords* lengths = nullptr);

// One run of the smallest batch on the calling thread: whatever a thread's first run takes of the device (its stream, a library's
// workspace) is taken before memory at rest is marked.
void WarmThread(const ServedModel& model, const ModelInstance& instance);

// The most rows of `bucket` at its full length that fit `budget`, margin included; 0 where none does.
std::int64_t LargestBatch(const ServedModel& model, const ModelInstance& instance, std::int64_t bucket, Bytes budget);

}  // namespace headroom
