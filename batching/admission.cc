#include "batching/admission.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <string>

namespace headroom {
namespace {

using Seconds64 = std::chrono::duration<double>;

constexpr Duration kSoonest = std::chrono::milliseconds(10);
constexpr Duration kLatest = std::chrono::seconds(10);
constexpr Duration kNever = std::chrono::milliseconds(-1);

Duration Scaled(Duration duration, double factor) { return std::chrono::duration_cast<Duration>(Seconds64(duration) * factor); }

Duration RetryAfter(Duration wait) { return std::clamp(wait, kSoonest, kLatest); }

// `a − b`, where `a` may be without end.
Duration Less(Duration a, Duration b) { return a == Duration::max() ? a : a - b; }

std::string Milliseconds(Duration duration) {
  return absl::StrCat(std::chrono::ceil<std::chrono::milliseconds>(duration).count(), " ms");
}

Duration Until(TimePoint time, TimePoint now) { return time == kForever ? Duration::max() : time - now; }

LoadRefusal Refusal(const Admission& admission) {
  const std::string wait = Milliseconds(admission.wait);
  switch (admission.decision) {
    case Admission::Decision::kTooLate:
      return {absl::DeadlineExceededError(absl::StrCat(
                  "the time to wait would be up before the request could be answered: a wait of ", wait, " is foreseen")),
              LoadReason::kDeadline, admission.retry_after};
    case Admission::Decision::kOverShare:
      return {absl::ResourceExhaustedError(
                  absl::StrCat("this caller has its share of what may wait; a wait of ", wait, " is foreseen")),
              LoadReason::kShare, admission.retry_after};
    default:
      return {absl::ResourceExhaustedError(absl::StrCat("the server is overloaded: a wait of ", wait, " is foreseen")),
              LoadReason::kWait, admission.retry_after};
  }
}

}  // namespace

Duration TimeOf(const Load& load, const LatencyModel::Line& line) {
  const double batches = static_cast<double>(load.batch_millionths) / 1e6;
  return Scaled(line.fixed, batches) + Scaled(load.compute, line.scale);
}

Duration PredictWait(const Backlog& backlog, const LatencyModel::Line& line) {
  if (backlog.ahead.rows == 0 && backlog.idle_workers > 0) return Duration::zero();
  const Duration own = TimeOf(backlog.ahead, line);
  Duration all = backlog.running + own;
  for (const Duration other : backlog.others) all += std::min(other, own);
  return all / std::max(1, backlog.workers);
}

Admission Decide(const Backlog& backlog, const LatencyModel::Line& line, Duration run, const Patience& patience, bool caller_known,
                 std::int64_t rows, std::int64_t most_rows) {
  using Decision = Admission::Decision;
  Admission admission{Decision::kAdmit, PredictWait(backlog, line), Duration::zero()};
  const Duration wait = admission.wait;
  if (wait <= Duration::zero()) return admission;
  const Duration clients = Less(std::min(patience.to_start, Less(patience.to_answer, run)), run / 2);
  const Duration most = std::min(clients, patience.to_wait);
  if (wait > clients) {
    admission.decision = Decision::kTooLate;
  } else if (wait > patience.to_wait) {
    admission.decision = Decision::kOverloaded;
  } else if (caller_known) {
    const Duration own = TimeOf(backlog.own, line) / std::max(1, backlog.workers);
    const bool over_time = most != Duration::max() && backlog.own.rows > 0 && own > Scaled(most - wait, kShareOfFree);
    const auto free_rows = static_cast<double>(most_rows - backlog.waiting.rows);
    const bool over_rows = backlog.own.rows > 0 && static_cast<double>(backlog.own.rows + rows) > kShareOfFree * free_rows;
    if (over_time || over_rows) admission.decision = Decision::kOverShare;
  }
  if (admission.decision != Decision::kAdmit) admission.retry_after = RetryAfter(most == Duration::max() ? wait / 2 : wait - most);
  return admission;
}

Duration TimeToDrain(std::int64_t rows, const Load& waiting, Duration wait) {
  const double share = waiting.rows <= 0 ? 1 : std::min(1.0, static_cast<double>(rows) / static_cast<double>(waiting.rows));
  return RetryAfter(Scaled(wait, share));
}

Backlog BacklogOf(const ServedModel& model, const ModelSet& models, std::int64_t priority, CallerId caller, TimePoint now) {
  const LoadSeen seen = model.queue.LoadSeenBy(priority, caller);
  Backlog backlog{seen.total, seen.ahead, seen.own, {}, Duration::zero(), 0, 0};
  for (const ModelInstance& instance : model.instances) {
    const int workers = instance.on->workers;
    const int running = instance.on->runs.count();
    backlog.workers += workers;
    backlog.idle_workers += std::max(0, workers - running);
    backlog.running += instance.on->runs.Left(now);
  }
  const std::shared_ptr<const ModelSet::Models> all = models.All();
  for (const auto& other : *all) {
    if (other.get() == &model) continue;
    const bool shares = std::any_of(other->instances.begin(), other->instances.end(),
                                    [&](const ModelInstance& instance) { return model.InstanceOn(*instance.on) != nullptr; });
    const Load load = other->queue.load();
    if (shares && load.rows > 0) backlog.others.push_back(TimeOf(load, other->latency().line()));
  }
  return backlog;
}

LoadAnswer CheckLoad(const ServedModel& model, const ModelSet& models, const LoadAsk& ask, TimePoint now) {
  const ModelInstance& instance = model.instances.front();
  const LatencyModel::Line line = model.latency().line();
  const Backlog backlog = BacklogOf(model, models, ask.priority, ask.caller, now);
  const QueueBounds& bounds = model.queue.bounds();
  if (absl::Status room = model.queue.CheckRoom(ask.rows, ask.bytes); !room.ok()) {
    const bool ever = ask.rows <= bounds.max_rows && (bounds.max_bytes == Bytes{0} || ask.bytes <= bounds.max_bytes);
    const Duration all = TimeOf(backlog.waiting, line) / std::max(1, backlog.workers);
    const Duration after = ever ? TimeToDrain(ask.rows, backlog.waiting, all) : kNever;
    return {LoadRefusal{std::move(room), LoadReason::kQueue, after}, kForever};
  }
  Duration run{0};
  if (ask.largest) {
    const std::int64_t rows = std::min(model.spec->largest_batch(), backlog.ahead.rows + ask.rows);
    // Half of all batches take longer than what is expected of them.
    run = instance.latency->AtMost(
        {ask.largest->alone ? 1 : rows, instance.ladder.PaddedLength(ask.largest->bucket, ask.largest->kept_length)});
  }
  const Patience patience{Until(ask.start_by, now), Until(ask.answer_by, now), ask.most_wait};
  const Admission admission = Decide(backlog, line, run, patience, ask.caller != 0, ask.rows, bounds.max_rows);
  if (admission.decision != Admission::Decision::kAdmit) return {Refusal(admission), kForever};
  const bool at_once = admission.wait <= Duration::zero();
  return {std::nullopt, std::min(ask.start_by, at_once || ask.answer_by == kForever ? ask.answer_by : ask.answer_by - run)};
}

}  // namespace headroom
