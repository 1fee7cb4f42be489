// Loads, replaces and unloads models while the server serves: budget first, swapped whole.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "batching/batcher.h"
#include "batching/served_model.h"
#include "runtime/model_registry.h"
#include "server/length_records.h"
#include "server/model_catalog.h"
#include "server/model_repository.h"
#include "server/options.h"

namespace headroom {

// A model of the repository, or one that is served, as a client may list it.
struct IndexEntry {
  std::string name;
  std::int64_t version = 0;  // 0: none is served
  bool ready = false;
  std::string reason;  // why not
};

// Whether a module of `weights` bytes can be loaded beside `served` on a device: what it leaves must still hold one row of every
// length that fits today. RESOURCE_EXHAUSTED naming the bytes.
absl::Status CheckRoomFor(Bytes weights, const ServingDevice& device, const std::vector<CatalogEntry>& served);

// Thread-safe; Load and Unload are done one after the other, and take as long as loading, calibrating and draining take.
class ModelControl {
 public:
  struct Parts {
    const ModelOptions& options;
    const std::vector<std::unique_ptr<ServingDevice>>& devices;
    ModelRegistry& registry;
    ModelCatalog& catalog;
    WorkSignal& work;
    Clock& clock;
    std::stop_token stop;                              // ends a load early
    std::function<void(const ServedModel&)> announce;  // before clients find it
    QueueTotals* queue_totals = nullptr;               // bounds what waits for all models together
    LengthRecords* lengths = nullptr;                  // where true lengths are counted
  };
  // What is passed by reference outlives the object.
  explicit ModelControl(Parts parts) : parts_(std::move(parts)) {}

  // Serves the newest version on disk. Nothing happens where that is the served one. Otherwise its memory is reserved before it is
  // loaded, the version served before goes on until the new one is ready, and what waits for that is answered by it.
  // NOT_FOUND: not in the repository; RESOURCE_EXHAUSTED: it does not fit beside what is served; others as ReadRepositoryModel and
  // LoadModels. After an error everything is as before.
  absl::Status Load(const std::string& name) EXCLUDES(changing_);

  // Takes it out of service; returns when what waited is answered and its memory is given back. NOT_FOUND where it is neither
  // served nor in the repository.
  absl::Status Unload(const std::string& name) EXCLUDES(changing_);

  absl::StatusOr<std::vector<IndexEntry>> Index() const;

 private:
  absl::Status CheckFallback(const RepositoryModel& model) const;
  absl::StatusOr<std::vector<Reservation>> ReserveWeights(const std::string& model_file, double copies);
  // Waits for the rows of a model that clients no longer find, and lets go of it.
  void Retire(CatalogEntry entry) REQUIRES(changing_);
  void Pause(Duration duration);

  const Parts parts_;
  Mutex changing_;
};

}  // namespace headroom
