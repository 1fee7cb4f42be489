#include "server/dry_process.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <string>

#include "runtime/dry_cuda/launch.h"

namespace headroom {

absl::Status EnterDryProcess(const std::vector<PlanCard>& cards, Bytes held, int argc, const char* const* argv) {
  const auto card = [](std::string* out, const PlanCard& c) { absl::StrAppend(out, c.memory.count, "B:", c.capability); };
  const std::vector<std::string> taken(cards.size(), absl::StrCat(held.count, "B"));
  const dry_cuda::CardList list{absl::StrJoin(cards, ",", card), absl::StrJoin(taken, ",")};
  switch (dry_cuda::StandingOn(list)) {
    case dry_cuda::Standing::kOnTheCards: return absl::OkStatus();
    case dry_cuda::Standing::kNotLoaded:
      return absl::FailedPreconditionError("--card: the loader did not load the dry CUDA runtime, see its words above");
    case dry_cuda::Standing::kElsewhere: break;
  }
  if (const std::string fault = dry_cuda::FaultOfHeldByOthers(list); !fault.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--card: ", fault));
  }
  if (const std::string fault = dry_cuda::PrepareEnvironment(list); !fault.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("--card: ", fault));
  }
  // By its own name, since the name that it was called by need not lead back to it.
  const std::string why = dry_cuda::Become("/proc/self/exe", std::vector<std::string>(argv, argv + argc));
  return absl::InternalError(absl::StrCat("--card: ", why));
}

}  // namespace headroom
