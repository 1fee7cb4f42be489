#include "metrics/state_gauges.h"

#include <string>

#include "metrics/family_builder.h"

namespace headroom {
namespace {

void AppendMemory(const ServerState& state, std::vector<prometheus::MetricFamily>& families) {
  FamilyBuilder budget(Metric::kMemoryBudget);
  FamilyBuilder reserved(Metric::kMemoryReserved);
  FamilyBuilder peak(Metric::kMemoryPeak);
  for (const ServerState::DeviceState& device : state.devices) {
    if (!device.memory) continue;
    budget.Add({device.device}, device.memory->budget.count);
    reserved.Add({device.device}, device.memory->reserved.count);
    peak.Add({device.device}, device.memory->peak.count);
  }
  for (FamilyBuilder* family : {&budget, &reserved, &peak}) std::move(*family).AppendTo(families);
}

void AppendMemoryAtRest(const ServerState& state, std::vector<prometheus::MetricFamily>& families) {
  FamilyBuilder at_rest(Metric::kMemoryAtRest);
  FamilyBuilder baseline(Metric::kMemoryBaseline);
  FamilyBuilder per_call(Metric::kLeakBytesPerCall);
  FamilyBuilder confidence(Metric::kLeakConfidence);
  FamilyBuilder found(Metric::kLeakFound);
  for (const ServerState::MemorySeries& series : state.memory) {
    const std::vector<std::string> labels = {series.device, series.memory};
    at_rest.Add(labels, series.at_rest.count);
    baseline.Add(labels, series.baseline.count);
    if (!series.leak) continue;
    per_call.AddDouble(labels, series.leak->bytes_per_call);
    confidence.AddDouble(labels, series.leak->confidence);
    found.Add(labels, series.leak->found);
  }
  FamilyBuilder exhaustion(Metric::kMemoryExhaustion);
  for (const ServerState::Exhaustion& device : state.exhaustion) exhaustion.AddDouble({device.device}, device.seconds);
  for (FamilyBuilder* family : {&at_rest, &baseline, &per_call, &confidence, &found, &exhaustion}) {
    std::move(*family).AppendTo(families);
  }
}

void AppendByModel(const ServerState& state, std::vector<prometheus::MetricFamily>& families) {
  FamilyBuilder models(Metric::kModelMemory);
  for (const ServerState::ModelMemory& model : state.model_memory) {
    models.Add({model.model, std::to_string(model.version), model.device, model.memory}, model.bytes.count);
  }
  FamilyBuilder margins(Metric::kMemoryMargin);
  for (const ServerState::Margin& margin : state.margins) {
    margins.AddDouble({margin.model, margin.device, std::to_string(margin.bucket)}, margin.factor);
  }
  FamilyBuilder ceilings(Metric::kShapeCeilings);
  for (const ServerState::Ceilings& of : state.ceilings) ceilings.Add({of.model, of.device}, of.shapes);
  FamilyBuilder cosines(Metric::kPrecisionCosine);
  FamilyBuilder errors(Metric::kPrecisionError);
  for (const ServerState::ModelPrecision& of : state.precisions) {
    cosines.AddDouble({of.model, of.device, of.precision}, of.min_cosine);
    errors.AddDouble({of.model, of.device, of.precision}, of.max_error);
  }
  FamilyBuilder stages(Metric::kStageMemory);
  for (const ServerState::Stage& stage : state.stages) stages.Add({stage.stage}, stage.bytes.count);
  FamilyBuilder resident(Metric::kResidentMemory);
  if (state.resident) resident.Add({"host"}, state.resident->count);
  for (FamilyBuilder* family : {&models, &margins, &ceilings, &cosines, &errors, &stages, &resident})
    std::move(*family).AppendTo(families);
}

void AppendLadders(const ServerState& state, std::vector<prometheus::MetricFamily>& families) {
  FamilyBuilder lengths(Metric::kRowLength);
  for (const ServerState::Lengths& of : state.lengths) lengths.AddHistogram({of.model}, of.rows);
  FamilyBuilder savings(Metric::kLadderSaving);
  FamilyBuilder buckets(Metric::kProposedBucket);
  for (const ServerState::Ladder& ladder : state.ladders) {
    savings.AddDouble({ladder.model}, ladder.saves);
    for (std::size_t i = 0; i < ladder.proposed.size(); ++i) buckets.Add({ladder.model, std::to_string(i + 1)}, ladder.proposed[i]);
  }
  for (FamilyBuilder* family : {&lengths, &savings, &buckets}) std::move(*family).AppendTo(families);
}

}  // namespace

std::vector<prometheus::MetricFamily> GaugesOf(const ServerState& state) {
  FamilyBuilder queue_rows(Metric::kQueueRows);
  FamilyBuilder queue_bytes(Metric::kQueueBytes);
  FamilyBuilder predicted_wait(Metric::kPredictedWait);
  for (const ServerState::Queue& queue : state.queues) {
    queue_rows.Add({queue.model}, queue.waiting_rows);
    queue_bytes.Add({queue.model}, queue.waiting_bytes.count);
    predicted_wait.AddDouble({queue.model}, Seconds(queue.predicted_wait));
  }
  FamilyBuilder ready(Metric::kModelReady);
  for (const ServerState::Model& model : state.models) ready.Add({model.model, std::to_string(model.version)}, model.ready);
  FamilyBuilder loads(Metric::kModelLoads);
  FamilyBuilder dry(Metric::kDeviceDry);
  FamilyBuilder degradation(Metric::kDegradationLevel);
  for (const ServerState::DeviceState& device : state.devices) {
    loads.Add({device.device}, device.model_loads);
    dry.Add({device.device}, !device.computes);
    degradation.Add({device.device}, device.degradation);
  }
  FamilyBuilder open_callers(Metric::kBreakerOpenCallers);
  open_callers.Add({}, state.breaker_open_callers);
  FamilyBuilder breaker_refusals(Metric::kBreakerRefusals);
  breaker_refusals.Add({}, state.breaker_refusals);
  FamilyBuilder server_ready(Metric::kReady);
  server_ready.Add({}, state.ready);
  FamilyBuilder strained(Metric::kReadinessStrained);
  for (const ServerState::Strain& strain : state.strains) strained.Add({strain.threshold}, strain.passed);
  FamilyBuilder connections(Metric::kConnections);
  connections.Add({}, state.connections);
  FamilyBuilder refused_connections(Metric::kConnectionsRefused);
  refused_connections.Add({}, state.refused_connections);
  std::vector<prometheus::MetricFamily> families;
  for (FamilyBuilder* family : {&queue_rows, &queue_bytes, &predicted_wait, &ready, &loads, &dry, &degradation, &open_callers,
                                &breaker_refusals, &server_ready, &strained, &connections, &refused_connections})
    std::move(*family).AppendTo(families);
  AppendMemory(state, families);
  AppendMemoryAtRest(state, families);
  AppendByModel(state, families);
  AppendLadders(state, families);
  return families;
}

}  // namespace headroom
