// Every metric of the program in one table: what there is, what it means, how it is labelled. Code that counts, the metrics page
// and docs/metrics.md all follow it.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace headroom {

enum class MetricKind { kCounter, kGauge, kHistogram };

enum class Metric {
  kRequestsReceived,
  kRequests,
  kRows,
  kTailRows,
  kLoadRefusals,
  kLateStarts,
  kBatches,
  kBatchRows,
  kBatchSplits,
  kWideRuns,
  kQueueRows,
  kQueueBytes,
  kPredictedWait,
  kUsefulTokens,
  kPaddingTokens,
  kUsefulTokenShare,
  kRowLength,
  kLadderSaving,
  kProposedBucket,
  kMemoryBudget,
  kMemoryReserved,
  kMemoryPeak,
  kMemoryAtRest,
  kMemoryBaseline,
  kModelMemory,
  kStageMemory,
  kResidentMemory,
  kLeakBytesPerCall,
  kLeakConfidence,
  kLeakFound,
  kMemoryExhaustion,
  kOutOfMemory,
  kBatchRetries,
  kMemoryUnderestimates,
  kMemoryMargin,
  kShapeCeilings,
  kMemoryEstimateRatio,
  kQueueSeconds,
  kComputeSeconds,
  kRequestSeconds,
  kModelReady,
  kModelLoads,
  kPrecisionCosine,
  kPrecisionError,
  kDeviceDry,
  kDegradationLevel,
  kBreakerOpenCallers,
  kBreakerRefusals,
  kReady,
  kReadinessStrained,
  kConnections,
  kConnectionsRefused,
  kBuildInfo,
  // Triton's names.
  kTritonSuccess,
  kTritonFailure,
  kTritonCount,
  kTritonExecCount,
  kTritonRequestDuration,
  kTritonQueueDuration,
  kTritonComputeInputDuration,
  kTritonComputeInferDuration,
  kTritonComputeOutputDuration,
  kTritonPending,
};

struct MetricDefinition {
  Metric metric;
  std::string name;
  MetricKind kind;
  std::vector<std::string> labels;  // in the order in which code gives their values
  std::string help;                 // one sentence, without a full stop
  std::vector<double> bounds;       // of a histogram's buckets, ascending, without +Inf
};

// All metrics, in the order of the enumerators.
std::span<const MetricDefinition> MetricCatalog();

const MetricDefinition& DefinitionOf(Metric metric);

// The text of docs/metrics.md.
std::string CatalogAsMarkdown();

}  // namespace headroom
