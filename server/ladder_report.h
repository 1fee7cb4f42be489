// What the ladders of the served models cost on the traffic that they had, and what better ones would.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rate_limit.h"
#include "base/sync.h"
#include "batching/bucket_tuning.h"
#include "batching/served_model.h"
#include "server/model_catalog.h"
#include "server/resource_watch.h"

namespace headroom {

// Of one served model.
struct ModelLadder {
  std::string model;
  std::int64_t version = 0;
  bool pads_to_buckets = false;  // on some device; else the advice is about what it would compute if it did
  LengthCounts lengths;          // of all rows that were admitted
  // Of the rows that run in batches, the best ladder of as many buckets; none until there are enough of them.
  std::optional<LadderAdvice> advice;
};

// "sequence { buckets: [ 24, 64, 512 ] }", as in a config.pbtxt.
std::string LadderAsConfig(const std::vector<std::int64_t>& buckets);

// The page /ladders: one JSON object.
std::string LaddersAsJson(const std::vector<ModelLadder>& ladders);

// "length,count" lines, which `headroom plan --traffic` reads.
std::string LengthsAsCsv(const LengthCounts& lengths);

// Thread-safe.
class LadderReport final : public WatchTask {
 public:
  // Fewer rows than these say little of what is to come.
  static constexpr double kEnoughRows = 1000;
  // Advice is made anew after so long at the earliest: a page may be asked for at any rate.
  static constexpr Duration kKeepFor = std::chrono::seconds(10);
  // A ladder that saves less is not worth a line in the log.
  static constexpr double kWorthALine = 0.05;

  // Both outlive the report.
  LadderReport(const ModelCatalog& catalog, Clock& clock) : catalog_(catalog), clock_(clock) {}

  // Each served model of variable length, by name. The lengths are of this moment, the advice is up to kKeepFor older.
  std::vector<ModelLadder> Ladders() EXCLUDES(mutex_);

  // Logs, for each model that pads to its buckets, a ladder that would save much: one line in an hour.
  void Look(const ResourceReading& reading) override;

 private:
  struct Kept {
    std::int64_t version = 0;
    TimePoint made{};
    LadderAdvice advice;
  };
  std::optional<LadderAdvice> AdviceFor(const ServedModel& model, const LengthCounts& lengths) EXCLUDES(mutex_);

  const ModelCatalog& catalog_;
  Clock& clock_;
  // Of the watch's thread.
  std::map<std::string, RateLimit> lines_;
  TimePoint next_look_ = TimePoint::min();

  Mutex mutex_;
  std::map<std::string, Kept> kept_ GUARDED_BY(mutex_);  // by model; one that was unloaded keeps its place
};

}  // namespace headroom
