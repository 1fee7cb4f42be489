// What has been counted of a model, as the statistics extension tells it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "metrics/model_totals.h"
#include "proto/open_inference.pb.h"

namespace headroom {

// `last_answer_ms`: since the Unix epoch; none where nothing was answered yet. Time in the queue and in a batch counts for each
// request that was answered OK; counts and times of `batch_stats` are those of whole batches.
inference::ModelStatistics StatisticsOf(const std::string& model, std::int64_t version, const ModelTotals& totals,
                                        std::optional<std::int64_t> last_answer_ms);

}  // namespace headroom
