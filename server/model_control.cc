#include "server/model_control.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "server/client_text.h"
#include "server/fallback_check.h"
#include "server/model_loader.h"

namespace headroom {
namespace {

// How long rows of a model that is taken out may wait before they are refused: as long as a drain of the whole server.
constexpr Duration kRetirePatience = std::chrono::seconds(30);
// How long a load waits for running batches to leave the memory that its weights need.
constexpr Duration kReservePatience = std::chrono::seconds(10);
// How often it is looked at what nobody tells of: memory given back, rows answered.
constexpr Duration kLook = std::chrono::milliseconds(5);

// The largest one-row need of an instance that fits what batches may have now.
Bytes LargestRowThatFits(const ModelInstance& instance, Bytes budget) {
  Bytes largest{0};
  for (const CalibrationPlan::Length& length : instance.ladder.ShapesToCalibrate().lengths) {
    const auto needs = instance.Needs(TimePoint{}).Peak({1, length.length});
    if (needs.ok() && *needs <= budget) largest = std::max(largest, *needs);
  }
  return largest;
}

}  // namespace

absl::Status CheckRoomFor(Bytes weights, const ServingDevice& device, const std::vector<CatalogEntry>& served) {
  ASSIGN_OR_RETURN(const BudgetSnapshot memory, device.budget->Snapshot());
  Bytes keep{0};
  for (const CatalogEntry& entry : served) {
    if (const ModelInstance* instance = entry.model->InstanceOn(device)) {
      keep = std::max(keep, LargestRowThatFits(*instance, memory.budget));
    }
  }
  if (weights + keep <= memory.budget) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("it does not fit beside what is served: loading it takes ", weights.count,
                                                   " bytes, of the ", memory.budget.count, " that batches may hold on ",
                                                   device.device->name(), " the served models need ", keep.count,
                                                   " for one row; unload one first"));
}

absl::Status ModelControl::Load(const std::string& name) {
  MutexLock one_at_a_time(changing_);
  ASSIGN_OR_RETURN(RepositoryModel model,
                   ReadRepositoryModel(parts_.options.model_repository, name, parts_.options.model_manifest));
  // Asked in passing: whoever holds a model keeps its memory.
  if (parts_.catalog.Find(name, absl::StrCat(model.version)).ok()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckFallback(model));
  Log(LogLevel::kInfo, "a client asks to load", {{"model", name}, {"version", model.version}});
  std::vector<CatalogEntry> entries;
  {
    // Until memory at rest is marked anew the weights are counted by this; a moment later they are counted twice, which harms
    // nobody.
    const auto room = ReserveWeights(model.file->path(), WeightCopies(model.spec.precision));
    if (!room.ok()) return {room.status().code(), absl::StrCat("model '", name, "': ", std::string(room.status().message()))};
    auto loaded = LoadModels({std::move(model)}, parts_.devices, parts_.registry, parts_.options, parts_.stop, parts_.queue_totals,
                             parts_.lengths);
    if (!loaded.ok()) {
      // What was loaded of it is gone; so is its cache.
      for (const auto& device : parts_.devices) RETURN_IF_ERROR(device->MarkAtRestAnew());
      return loaded.status();
    }
    entries = *std::move(loaded);
  }
  const CatalogEntry& entry = entries.front();
  parts_.announce(*entry.model);
  CatalogEntry replaced = parts_.catalog.Put(entry);
  Log(LogLevel::kInfo, "a model was loaded", {{"model", name}, {"version", entry.model->version}});
  if (replaced.model != nullptr) Retire(std::move(replaced));
  return absl::OkStatus();
}

absl::Status ModelControl::Unload(const std::string& name) {
  MutexLock one_at_a_time(changing_);
  CatalogEntry taken = parts_.catalog.Take(name);
  if (taken.model == nullptr) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, ModelNamesIn(parts_.options.model_repository));
    if (std::find(names.begin(), names.end(), name) != names.end()) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("no model is served by the name ", Quoted(name)));
  }
  Log(LogLevel::kInfo, "a model is taken out of service", {{"model", name}, {"version", taken.model->version}});
  Retire(std::move(taken));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<IndexEntry>> ModelControl::Index() const {
  std::map<std::string, IndexEntry> entries;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ModelNamesIn(parts_.options.model_repository));
  for (const std::string& name : names) entries[name] = {name, 0, false, "it is not loaded"};
  for (const CatalogEntry& served : parts_.catalog.Served()) {
    const std::string& name = served.model->spec->name;
    entries[name] = {name, served.model->version, true, ""};
  }
  std::vector<IndexEntry> index;
  for (auto& [name, entry] : entries) index.push_back(std::move(entry));
  return index;
}

absl::Status ModelControl::CheckFallback(const RepositoryModel& model) const {
  const std::string& name = model.spec.fallback_model;
  if (name.empty()) return absl::OkStatus();
  auto fallback = ReadRepositoryModel(parts_.options.model_repository, name, parts_.options.model_manifest);
  if (!fallback.ok()) return absl::InvalidArgumentError(std::string(fallback.status().message()));
  fallback->spec.fallback_model.clear();  // what stands in for it is no business of this model's
  return CheckFallbackModels({model, *std::move(fallback)});
}

absl::StatusOr<std::vector<Reservation>> ModelControl::ReserveWeights(const std::string& model_file, double copies) {
  // A module is stored as its tensors are, uncompressed: its file is a little more than what its weights will take, of which there
  // are so many copies while it is loaded.
  std::error_code error;
  const auto size = std::filesystem::file_size(model_file, error);
  if (error) return absl::InvalidArgumentError("the model file cannot be read");
  const Bytes weights = Scale(Bytes{static_cast<std::int64_t>(size)}, copies);
  const std::vector<CatalogEntry> served = parts_.catalog.Served();
  std::vector<Reservation> reservations;
  const TimePoint patience = After(parts_.clock.Now(), kReservePatience);
  for (const auto& device : parts_.devices) {
    RETURN_IF_ERROR(CheckRoomFor(weights, *device, served));
    auto reserved = device->budget->Reserve(weights);
    while (!reserved.ok() && absl::IsResourceExhausted(reserved.status()) && parts_.clock.Now() < patience) {
      // Held by running batches. Workers must not take what they give back before this has.
      Pause(kLook);
      MutexLock turn(device->planning);
      reserved = device->budget->Reserve(weights);
    }
    if (!reserved.ok()) return reserved.status();
    reservations.push_back(*std::move(reserved));
  }
  return reservations;
}

void ModelControl::Retire(CatalogEntry entry) {
  const std::string name = entry.model->spec->name;
  const std::int64_t version = entry.model->version;
  const TimePoint patience = After(parts_.clock.Now(), kRetirePatience);
  parts_.work.Notify();
  while (entry.model->queue.rows_waiting() > 0 && parts_.clock.Now() < patience) Pause(kLook);
  RefuseWaiting(*entry.model, "the model was taken out of service");
  parts_.catalog.Forget(*entry.model);
  // Running batches, and calls whose answer is on its way, hold it a moment longer.
  const std::weak_ptr<const ServedModel> last = entry.model;
  entry = {};
  while (!last.expired() && parts_.clock.Now() < patience) Pause(kLook);
  if (!last.expired()) {
    Log(LogLevel::kWarning, "a model that was taken out is still in use: its memory is given back later", {{"model", name}});
  }
  for (const auto& device : parts_.devices) {
    if (const absl::Status marked = device->MarkAtRestAnew(); !marked.ok()) {
      Log(LogLevel::kWarning, "memory at rest is not known anew", {{"device", device->device->name()}});
    }
  }
  Log(LogLevel::kInfo, "a model was unloaded", {{"model", name}, {"version", version}});
}

void ModelControl::Pause(Duration duration) {
  Mutex mutex;
  CondVar nobody;
  const TimePoint until = After(parts_.clock.Now(), duration);
  MutexLock lock(mutex);
  parts_.clock.WaitUntil(mutex, nobody, until);
}

}  // namespace headroom
