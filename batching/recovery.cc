#include "batching/recovery.h"

namespace headroom {

NextTry AfterOutOfMemory(const OutOfMemoryCase& failed) {
  if (failed.rows > 1) return NextTry::kHalves;
  if (!failed.was_alone) return NextTry::kAlone;
  const bool others_hold_it = failed.needs > failed.budget && failed.needs <= failed.idle_budget;
  return others_hold_it && failed.retries < kMostRetries ? NextTry::kWaitAgain : NextTry::kGiveUp;
}

NextTry AfterModelError(std::int64_t rows) { return rows > 1 ? NextTry::kHalves : NextTry::kGiveUp; }

}  // namespace headroom
