#include "server/server_state.h"

#include <algorithm>
#include <map>
#include <string>

#include "batching/admission.h"

namespace headroom {
namespace {

void AppendQueues(const StateParts& parts, ServerState& state) {
  // A version that is being taken out may have rows beside its successor's.
  std::map<std::string, ServerState::Queue> waiting;
  const auto models = parts.catalog.models().All();  // held: a version that is swapped meanwhile takes its snapshot away
  for (const auto& model : *models) {
    ServerState::Queue& queue = waiting[model->spec->name];
    const Load load = model->queue.load();
    queue.waiting_rows += load.rows;
    queue.waiting_bytes += load.bytes;
    const Backlog backlog =
        BacklogOf(*model, parts.catalog.models(), model->spec->queue.priority_levels, /*caller=*/0, parts.clock.Now());
    queue.predicted_wait = std::max(queue.predicted_wait, PredictWait(backlog, model->latency().line()));
  }
  for (auto& [name, queue] : waiting) {
    queue.model = name;
    state.queues.push_back(queue);
  }
}

void AppendDevices(const StateParts& parts, ServerState& state) {
  for (const auto& device : parts.devices) {
    ServerState::DeviceState figures{device->device->name(), device->device->computes(), device->device->loads(), {}};
    if (const auto memory = device->budget->Snapshot(); memory.ok()) figures.memory = *memory;
    figures.degradation = static_cast<std::int64_t>(device->degradation.load());
    state.devices.push_back(figures);
  }
}

void AppendMemoryAtRest(const StateParts& parts, ServerState& state) {
  const MemoryFigures figures = parts.memory_watch.Figures();
  for (const MemorySeries& series : figures.series) {
    auto& shown = state.memory.emplace_back(
        ServerState::MemorySeries{series.device, series.memory, series.baseline, series.at_rest, std::nullopt});
    if (series.leak) shown.leak = {series.leak->bytes_per_call, series.leak->confidence, series.leak->leaking};
  }
  for (const auto& [device, seconds] : figures.exhaustion) state.exhaustion.push_back({device, seconds});
  if (figures.process) state.resident = figures.process->resident;
}

void AppendModels(const StateParts& parts, ServerState& state) {
  for (const CatalogEntry& entry : parts.catalog.Served()) {
    const ServedModel& model = *entry.model;
    const std::string& name = model.spec->name;
    state.models.push_back({name, model.version, parts.lifecycle.phase() == Lifecycle::Phase::kServing});
    for (const ModelInstance& instance : model.instances) {
      const auto& [allocated, resident] = instance.footprint;
      const std::string& device = instance.on->device->name();
      state.model_memory.push_back({name, model.version, device, "allocated", allocated});
      if (resident) state.model_memory.push_back({name, model.version, device, "resident", *resident});
      const auto factors = instance.learned->correction.factors();
      for (const auto& of : *factors) state.margins.push_back({name, device, of.length, of.factor});
      const PrecisionTrial& in = instance.precision;
      state.precisions.push_back({name, device, NameOf(in.precision), in.error.min_cosine, in.error.max_error});
      state.ceilings.push_back({name, device, instance.learned->ceilings.count(parts.clock.Now())});
    }
  }
}

void AppendStages(const StateParts& parts, ServerState& state) {
  Bytes reserved{0};
  for (const auto& device : parts.devices) reserved += device->budget->reserved();
  state.stages.push_back({"device", reserved});
  const HostUsage host = parts.host.usage();
  for (const HostStage stage : {HostStage::kRequest, HostStage::kQueue, HostStage::kStaging, HostStage::kReply}) {
    state.stages.push_back({NameOf(stage), host.of(stage)});
  }
}

void AppendLadders(const StateParts& parts, ServerState& state) {
  for (const ModelLadder& ladder : parts.ladders.Ladders()) {
    ServerState::Lengths& lengths = state.lengths.emplace_back(ServerState::Lengths{ladder.model, {}});
    for (const auto& [length, rows] : ladder.lengths) lengths.rows.emplace_back(length, static_cast<std::int64_t>(rows));
    if (!ladder.pads_to_buckets || !ladder.advice) continue;
    state.ladders.push_back({ladder.model, ladder.advice->saves(), ladder.advice->proposed});
  }
}

}  // namespace

ServerState ReadState(const StateParts& parts) {
  ServerState state;
  state.ready = parts.lifecycle.serving();
  for (const StrainKind kind : {StrainKind::kMemory, StrainKind::kQueueDelay, StrainKind::kLatency}) {
    state.strains.push_back({NameOf(kind), parts.readiness.strained(kind)});
  }
  AppendQueues(parts, state);
  AppendModels(parts, state);
  AppendDevices(parts, state);
  AppendMemoryAtRest(parts, state);
  AppendStages(parts, state);
  AppendLadders(parts, state);
  state.connections = parts.grpc.connections();
  state.refused_connections = parts.grpc.refused_connections();
  state.breaker_open_callers = parts.breaker.open_callers();
  state.breaker_refusals = parts.breaker.refusals();
  return state;
}

}  // namespace headroom
