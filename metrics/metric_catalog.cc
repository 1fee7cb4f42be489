#include "metrics/metric_catalog.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace headroom {
namespace {

using Kind = MetricKind;

// A quarter of a decade apart, 100 µs to 10 s.
const std::vector<double> kSecondsBounds = {0.0001, 0.00018, 0.00032, 0.00057, 0.001, 0.0018, 0.0032, 0.0057, 0.01, 0.018, 0.032,
                                            0.057,  0.1,     0.18,    0.32,    0.57,  1,      1.8,    3.2,    5.7,  10};
const std::vector<double> kRowsBounds = {1, 2, 4, 8, 16, 32, 64, 128, 256};
// The usual buckets, and those half-way between them.
const std::vector<double> kLengthBounds = {8,   16,  24,  32,   48,   64,   96,   128,  192, 256,
                                           384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192};
// Dense around 1, where an estimate turns from safe to short.
const std::vector<double> kRatioBounds = {0.5, 0.7,  0.8,  0.85, 0.9,  0.93, 0.95, 0.97, 0.98, 0.99,
                                          1,   1.01, 1.02, 1.03, 1.05, 1.07, 1.1,  1.2,  1.5};

std::vector<MetricDefinition> MakeCatalog() {
  return {
      {Metric::kRequestsReceived,
       "headroom_requests_received_total",
       Kind::kCounter,
       {"model"},
       "Inference requests received; a name that is not served counts under (unknown)",
       {}},
      {Metric::kRequests,
       "headroom_requests_total",
       Kind::kCounter,
       {"model", "outcome"},
       "Inference requests answered, each once, by outcome",
       {}},
      {Metric::kRows,
       "headroom_rows_total",
       Kind::kCounter,
       {"model", "outcome"},
       "Rows of admitted requests, by the outcome of their request",
       {}},
      {Metric::kTailRows,
       "headroom_tail_rows_total",
       Kind::kCounter,
       {"model", "treatment"},
       "Rows beyond the last bucket: cut (truncate), run alone (solo) or refused, with their whole request (refused)",
       {}},
      {Metric::kLoadRefusals,
       "headroom_load_refusals_total",
       Kind::kCounter,
       {"model", "reason"},
       "Requests refused for what waits or runs: no room for their rows or bytes (queue), too many requests inside (calls), "
       "time that would be up before the answer (deadline), a wait longer than --max-wait-seconds (wait), a caller that has its "
       "share (share)",
       {}},
      {Metric::kLateStarts,
       "headroom_late_starts_total",
       Kind::kCounter,
       {"model"},
       "Rows whose time was up before the batch that ran them began: always 0, or deadlines are not kept",
       {}},
      {Metric::kBatches,
       "headroom_batches_total",
       Kind::kCounter,
       {"model", "device", "bucket"},
       "Batches run to the end; bucket 0 is a model of fixed shapes",
       {}},
      {Metric::kBatchRows,
       "headroom_batch_rows",
       Kind::kHistogram,
       {"model"},
       "Rows of a batch that was run to the end; the sum is the rows really run",
       kRowsBounds},
      {Metric::kBatchSplits,
       "headroom_batch_splits_total",
       Kind::kCounter,
       {"model", "reason"},
       "Batches closed while more rows waited for them: at the largest number of rows, or at the memory available",
       {}},
      {Metric::kWideRuns,
       "headroom_wide_runs_total",
       Kind::kCounter,
       {"model"},
       "Batches that had more threads than --intra-op-threads, since processors were idle when they started",
       {}},
      {Metric::kQueueRows, "headroom_queue_rows", Kind::kGauge, {"model"}, "Rows that wait for a batch", {}},
      {Metric::kQueueBytes, "headroom_queue_bytes", Kind::kGauge, {"model"}, "Bytes of the requests of rows that wait", {}},
      {Metric::kPredictedWait,
       "headroom_predicted_wait_seconds",
       Kind::kGauge,
       {"model"},
       "How long a row of the least urgent priority that came now would be expected to wait: what requests are admitted by",
       {}},
      {Metric::kUsefulTokens,
       "headroom_useful_tokens_total",
       Kind::kCounter,
       {"model"},
       "Tokens computed within the true lengths of rows",
       {}},
      {Metric::kPaddingTokens,
       "headroom_padding_tokens_total",
       Kind::kCounter,
       {"model"},
       "Tokens computed beyond the true lengths of rows",
       {}},
      {Metric::kUsefulTokenShare,
       "headroom_useful_token_ratio",
       Kind::kGauge,
       {"model"},
       "Tokens within the true lengths of rows divided by tokens computed, since the start; absent until a batch has run",
       {}},
      {Metric::kRowLength,
       "headroom_row_length_tokens",
       Kind::kHistogram,
       {"model"},
       "True length of a row that was admitted, as its client sent it; GET /lengths/MODEL tells each length",
       kLengthBounds},
      {Metric::kLadderSaving,
       "headroom_ladder_saving_ratio",
       Kind::kGauge,
       {"model"},
       "Share of the tokens computed with padding to the bucket that the best ladder of as many buckets would save; 0 where there "
       "is no better one, absent before 1000 rows and where padding is not to the bucket",
       {}},
      {Metric::kProposedBucket,
       "headroom_proposed_bucket_tokens",
       Kind::kGauge,
       {"model", "place"},
       "A bucket of that ladder, by its place from 1 up; the present ladder where there is no better one",
       {}},
      {Metric::kMemoryBudget,
       "headroom_memory_budget_bytes",
       Kind::kGauge,
       {"device"},
       "Memory that batches may hold together now: the memory fraction of what is free; absent while the device does "
       "not tell",
       {}},
      {Metric::kMemoryReserved,
       "headroom_memory_reserved_bytes",
       Kind::kGauge,
       {"device"},
       "Memory reserved for running batches; 0 at rest",
       {}},
      {Metric::kMemoryPeak,
       "headroom_memory_peak_bytes",
       Kind::kGauge,
       {"device"},
       "The most memory that batches have really held at once since readiness",
       {}},
      {Metric::kMemoryAtRest,
       "headroom_memory_at_rest_bytes",
       Kind::kGauge,
       {"device", "memory"},
       "Memory in use while nothing runs: the least of the last ten seconds",
       {}},
      {Metric::kMemoryBaseline,
       "headroom_memory_baseline_bytes",
       Kind::kGauge,
       {"device", "memory"},
       "Memory at rest when the server became ready, loaded and warm",
       {}},
      {Metric::kModelMemory,
       "headroom_model_memory_bytes",
       Kind::kGauge,
       {"model", "version", "device", "memory"},
       "What loading the model and warming it up added to memory at rest; resident is what the process grew by, with what it "
       "freed meanwhile",
       {}},
      {Metric::kStageMemory,
       "headroom_stage_memory_bytes",
       Kind::kGauge,
       {"stage"},
       "Memory that requests hold at each stage, those that are accounted for",
       {}},
      {Metric::kResidentMemory,
       "headroom_resident_memory_bytes",
       Kind::kGauge,
       {"device"},
       "All pages of the process in memory, those of files such as libraries included",
       {}},
      {Metric::kLeakBytesPerCall,
       "headroom_memory_leak_bytes_per_call",
       Kind::kGauge,
       {"device", "memory"},
       "By how much memory at rest grows with each call, robustly estimated over the latest window; absent until there is one",
       {}},
      {Metric::kLeakConfidence,
       "headroom_memory_leak_confidence_ratio",
       Kind::kGauge,
       {"device", "memory"},
       "How certain it is that memory at rest rises at all, 0 to 1; a single step is a rise too",
       {}},
      {Metric::kLeakFound,
       "headroom_memory_leak_found",
       Kind::kGauge,
       {"device", "memory"},
       "1 while memory at rest goes on growing, certainly, by more than allocators do, and throughout the window, else 0",
       {}},
      {Metric::kMemoryExhaustion,
       "headroom_memory_exhaustion_seconds",
       Kind::kGauge,
       {"device"},
       "Time until the leaks that were found have used up what is left; +Inf where there is none, absent until it can be told",
       {}},
      {Metric::kOutOfMemory,
       "headroom_out_of_memory_total",
       Kind::kCounter,
       {"model", "device"},
       "Out-of-memory errors caught",
       {}},
      {Metric::kBatchRetries,
       "headroom_batch_retries_total",
       Kind::kCounter,
       {"model", "reason"},
       "Runs that failed and whose rows were run again, in parts or with the device to themselves",
       {}},
      {Metric::kMemoryUnderestimates,
       "headroom_memory_underestimates_total",
       Kind::kCounter,
       {"model", "device"},
       "Batches that took more memory than was reserved for them",
       {}},
      {Metric::kMemoryMargin,
       "headroom_memory_margin_ratio",
       Kind::kGauge,
       {"model", "device", "bucket"},
       "Memory reserved for a batch of the bucket divided by its estimate, as corrected by the batches so far",
       {}},
      {Metric::kShapeCeilings,
       "headroom_memory_shape_ceilings",
       Kind::kGauge,
       {"model", "device"},
       "Shapes that ran out of memory lately and are held to fewer rows for a while",
       {}},
      {Metric::kMemoryEstimateRatio,
       "headroom_memory_estimate_ratio",
       Kind::kHistogram,
       {"model", "device"},
       "Actual divided by estimated bytes in tensors at the peak of a batch that can be told from others; above 1 the "
       "estimate was short",
       kRatioBounds},
      {Metric::kQueueSeconds,
       "headroom_queue_seconds",
       Kind::kHistogram,
       {"model"},
       "A row's wait from the arrival of its request to the start of its batch",
       kSecondsBounds},
      {Metric::kComputeSeconds,
       "headroom_compute_seconds",
       Kind::kHistogram,
       {"model"},
       "A batch's run on the device",
       kSecondsBounds},
      {Metric::kRequestSeconds,
       "headroom_request_seconds",
       Kind::kHistogram,
       {"model"},
       "A request from receipt to answer, whatever the outcome",
       kSecondsBounds},
      {Metric::kModelReady, "headroom_model_ready", Kind::kGauge, {"model", "version"}, "1 while the model serves", {}},
      {Metric::kModelLoads,
       "headroom_model_loads_total",
       Kind::kCounter,
       {"device"},
       "Model files handed to libtorch; more than one for each model and version is a fault",
       {}},
      {Metric::kPrecisionCosine,
       "headroom_model_precision_min_cosine",
       Kind::kGauge,
       {"model", "device", "precision"},
       "The least cosine of the model's answers to those in FP32, on made-up rows at load, in the precision that it is served in",
       {}},
      {Metric::kPrecisionError,
       "headroom_model_precision_max_error",
       Kind::kGauge,
       {"model", "device", "precision"},
       "The largest difference of an element of the model's answers to FP32's, on made-up rows at load",
       {}},
      {Metric::kDeviceDry,
       "headroom_device_dry",
       Kind::kGauge,
       {"device"},
       "1 where the device computes nothing (the dry CUDA runtime) and answers mean nothing, else 0",
       {}},
      {Metric::kDegradationLevel,
       "headroom_degradation_level",
       Kind::kGauge,
       {"device"},
       "What is left out for lack of memory: 0 nothing, 1 smaller batches, 2 no tiers, 3 low priority refused, 4 fallback model",
       {}},
      {Metric::kBreakerOpenCallers,
       "headroom_breaker_open_callers",
       Kind::kGauge,
       {},
       "Callers that are refused, or on trial, since their recent requests were mostly invalid or too long",
       {}},
      {Metric::kBreakerRefusals,
       "headroom_breaker_refusals_total",
       Kind::kCounter,
       {},
       "Requests refused for their caller's recent ones; they are answered with the outcome queue_full",
       {}},
      {Metric::kReady, "headroom_ready", Kind::kGauge, {}, "1 while health and /readyz say that the server is ready, else 0", {}},
      {Metric::kReadinessStrained,
       "headroom_readiness_strained",
       Kind::kGauge,
       {"threshold"},
       "1 while the server says that it is not ready since it is beyond this threshold (memory, queue_delay or latency), else 0",
       {}},
      {Metric::kConnections, "headroom_grpc_connections", Kind::kGauge, {}, "Open connections to the port for inference", {}},
      {Metric::kConnectionsRefused,
       "headroom_grpc_connections_refused_total",
       Kind::kCounter,
       {},
       "Connections closed at once, since --max-connections were open or file descriptors had run out",
       {}},
      {Metric::kBuildInfo, "headroom_build_info", Kind::kGauge, {"version"}, "Always 1; the version of the program", {}},
      {Metric::kTritonSuccess,
       "nv_inference_request_success",
       Kind::kCounter,
       {"model", "version"},
       "Requests answered OK; as headroom_requests_total{outcome=\"ok\"}",
       {}},
      {Metric::kTritonFailure,
       "nv_inference_request_failure",
       Kind::kCounter,
       {"model", "version", "reason"},
       "Requests answered anything else, by reason",
       {}},
      {Metric::kTritonCount,
       "nv_inference_count",
       Kind::kCounter,
       {"model", "version"},
       "Rows run; as headroom_batch_rows_sum",
       {}},
      {Metric::kTritonExecCount,
       "nv_inference_exec_count",
       Kind::kCounter,
       {"model", "version"},
       "Batches run to the end; as headroom_batches_total",
       {}},
      {Metric::kTritonRequestDuration,
       "nv_inference_request_duration_us",
       Kind::kCounter,
       {"model", "version"},
       "Time of the requests answered OK, from arrival to answer, in all",
       {}},
      {Metric::kTritonQueueDuration,
       "nv_inference_queue_duration_us",
       Kind::kCounter,
       {"model", "version"},
       "Of these, the wait until their batches started",
       {}},
      {Metric::kTritonComputeInputDuration,
       "nv_inference_compute_input_duration_us",
       Kind::kCounter,
       {"model", "version"},
       "Of these, putting their batches together",
       {}},
      {Metric::kTritonComputeInferDuration,
       "nv_inference_compute_infer_duration_us",
       Kind::kCounter,
       {"model", "version"},
       "Of these, the runs of their batches",
       {}},
      {Metric::kTritonComputeOutputDuration,
       "nv_inference_compute_output_duration_us",
       Kind::kCounter,
       {"model", "version"},
       "Of these, taking their batches apart and making the answers",
       {}},
      {Metric::kTritonPending,
       "nv_inference_pending_request_count",
       Kind::kGauge,
       {"model", "version"},
       "Requests received and not yet answered",
       {}},
  };
}

const char* KindName(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter: return "counter";
    case MetricKind::kGauge: return "gauge";
    case MetricKind::kHistogram: return "histogram";
  }
  return "";
}

constexpr const char* kMarkdownHead =
    "# Metrics\n"
    "\n"
    "The page is `/metrics` on the HTTP address, in Prometheus' text format. This file is made from\n"
    "`metrics/metric_catalog.cc`; a test compares the two.\n"
    "\n"
    "- Series whose labels are known beforehand are there from the start, at 0. Clients cannot make new ones: a name that\n"
    "  is not served counts under `model=\"(unknown)\"`.\n"
    "- `outcome` is one of `ok`, `invalid`, `not_found`, `queue_full`, `over_budget`, `expired`, `cancelled`,\n"
    "  `unavailable`, `failed`. At rest, requests received are the sum of the requests over all outcomes.\n"
    "- `reason` of a split is `rows` (the largest batch) or `memory` (the next row would not have fitted).\n"
    "- `reason` of a retry is `memory` (out of memory) or `error` (the model failed on some row).\n"
    "- `bucket` or `device` is `(other)` for a batch outside the model's buckets, such as a row that ran alone beyond the\n"
    "  last one.\n"
    "- `memory` is `allocated` (in tensors) or `held` (by the allocator, in use or cached) of a device, or `resident`: the\n"
    "  process' own pages, for which `device` is `host`. docs/memory.md says how to read these figures.\n"
    "- `stage` is one of `request`, `queue`, `staging`, `device`, `reply`.\n"
    "- `nv_inference_*` are Triton's names for what the other families count, for dashboards that exist. They count by version:\n"
    "  what was answered while that was the one served. `reason` of a failure is `REJECTED` (`queue_full`, `over_budget`,\n"
    "  `expired`, `unavailable`), `CANCELED` (`cancelled`), `BACKEND` (`failed`) or `OTHER` (`invalid`, `not_found`).\n"
    "- Gauges are read when the page is asked for. One that cannot be read is absent, never 0.\n"
    "- Warm-up and calibration are counted nowhere.\n"
    "\n";

std::string BoundsText(const MetricDefinition& metric) {
  return absl::StrCat("- `", metric.name, "`: ", absl::StrJoin(metric.bounds, ", "), "\n");
}

}  // namespace

std::span<const MetricDefinition> MetricCatalog() {
  static const auto* const catalog = new std::vector<MetricDefinition>(MakeCatalog());
  return *catalog;
}

const MetricDefinition& DefinitionOf(Metric metric) { return MetricCatalog()[static_cast<std::size_t>(metric)]; }

std::string CatalogAsMarkdown() {
  std::string text = kMarkdownHead;
  absl::StrAppend(&text, "| name | kind | labels | meaning |\n| --- | --- | --- | --- |\n");
  for (const MetricDefinition& metric : MetricCatalog()) {
    absl::StrAppend(&text, "| `", metric.name, "` | ", KindName(metric.kind), " | ", absl::StrJoin(metric.labels, ", "), " | ",
                    metric.help, " |\n");
  }
  absl::StrAppend(&text, "\n## Upper bounds of the histograms' buckets\n\n");
  for (const MetricDefinition& metric : MetricCatalog()) {
    if (metric.kind == MetricKind::kHistogram) absl::StrAppend(&text, BoundsText(metric));
  }
  return text;
}

}  // namespace headroom
