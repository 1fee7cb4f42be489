#include "server/card_presets.h"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <array>

#include "runtime/dry_cuda/launch.h"

namespace headroom {
namespace {

struct Preset {
  const char* name;
  std::int64_t mebibytes;
  const char* capability;
};

// Memory is what cudaMemGetInfo calls the total, which is less than the size on the box: the driver and, on T4 and A10G, error
// correction keep a part. It moves by some tens of MiB between drivers; these are figures that PyTorch prints as a card's total
// memory, from memory and not read off a card here, the lower one where several are about. Capabilities as NVIDIA publishes them.
constexpr std::array<Preset, 6> kPresets = {{
    {"t4", 15'095, "7.5"},         // sold as 16 GB
    {"l4", 22'478, "8.9"},         // 24 GB
    {"a10g", 22'515, "8.6"},       // 24 GB
    {"a100-80gb", 81'037, "8.0"},  // 80 GB
    {"h100", 80'995, "9.0"},       // 80 GB
    {"h200", 143'156, "9.0"},      // 141 GB
}};
constexpr const char* kUsualCapability = "8.0";

absl::Status Unknown(const std::string& text, const std::string& why) {
  const auto name = [](std::string* out, const Preset& preset) { out->append(preset.name); };
  return absl::InvalidArgumentError(absl::StrCat("must be ", absl::StrJoin(kPresets, ", ", name),
                                                 " or a size such as 16GiB or 16GiB:8.0, not \"", absl::CEscape(text), "\"", why));
}

absl::StatusOr<PlanCard> ParsePlanCard(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  const auto preset = std::find_if(kPresets.begin(), kPresets.end(), [&](const Preset& p) { return lower == p.name; });
  if (preset != kPresets.end()) return PlanCard{lower, MiB(preset->mebibytes), preset->capability};

  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  const absl::StatusOr<Bytes> memory = ParseBytes(parts.first);
  if (!memory.ok() || memory->count <= 0) return Unknown(text, "");
  const bool alone = text.find(':') == std::string::npos;
  PlanCard card{text, *memory, alone ? kUsualCapability : parts.second};
  const std::string fault = dry_cuda::FaultOfCards(absl::StrCat(card.memory.count, "B:", card.capability));
  if (!fault.empty()) return Unknown(text, absl::StrCat(": ", fault));
  return card;
}

}  // namespace

absl::StatusOr<std::vector<PlanCard>> ParsePlanCards(const std::string& text) {
  std::vector<PlanCard> cards;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    absl::StatusOr<PlanCard> card = ParsePlanCard(std::string(part));
    if (!card.ok()) return card.status();
    cards.push_back(*std::move(card));
  }
  return cards;
}

}  // namespace headroom
