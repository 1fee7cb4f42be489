#include "test/gpu/check_options.h"

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <functional>
#include <map>

#include "base/status_macros.h"

namespace headroom {
namespace {

using Setter = std::function<bool(const std::string&)>;

Setter Positive(std::int64_t& to) {
  return [&to](const std::string& word) { return absl::SimpleAtoi(word, &to) && to > 0; };
}

std::map<std::string, Setter> SettersOf(CheckOptions& options) {
  return {
      {"--device",
       [&](const std::string& word) {
         options.device = word;
         return word == "cpu" || absl::StartsWith(word, "cuda:");
       }},
      {"--models",
       [&](const std::string& word) {
         options.models = word;
         return !word.empty();
       }},
      {"--memory-limit",
       [&](const std::string& word) {
         const auto bytes = ParseBytes(word);
         if (bytes.ok()) options.memory_limit = *bytes;
         return bytes.ok();
       }},
      {"--vocabulary", Positive(options.vocabulary)},
      {"--width", Positive(options.width)},
      {"--longest", Positive(options.longest)},
      {"--max-rows", Positive(options.max_rows)},
      {"--shapes", Positive(options.shapes)},
      {"--burst-rows", Positive(options.burst_rows)},
      {"--rounds", Positive(options.rounds)},
      {"--seconds",
       [&](const std::string& word) {
         double seconds = 0;
         if (!absl::SimpleAtod(word, &seconds) || seconds <= 0) return false;
         options.time = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
         return true;
       }},
      {"--seed", [&](const std::string& word) { return absl::SimpleAtoi(word, &options.seed); }},
  };
}

}  // namespace

absl::StatusOr<CheckOptions> ParseCheckOptions(const std::vector<std::string>& words) {
  CheckOptions options;
  const std::map<std::string, Setter> setters = SettersOf(options);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!absl::StartsWith(words[i], "--")) {
      options.checks.push_back(words[i]);
      continue;
    }
    const auto setter = setters.find(words[i]);
    if (setter == setters.end()) return absl::InvalidArgumentError(absl::StrCat("no such option: ", words[i]));
    if (++i == words.size() || !setter->second(words[i])) {
      return absl::InvalidArgumentError(absl::StrCat(words[i - 1], ": ", i < words.size() ? words[i] : "a value is missing"));
    }
  }
  if (options.models.empty() || options.vocabulary == 0 || options.width == 0 || options.longest == 0 || options.max_rows == 0 ||
      options.checks.empty()) {
    return absl::InvalidArgumentError(
        "--models, --vocabulary, --width, --longest, --max-rows and the name of a check are needed; test/gpu/check gives them");
  }
  return options;
}

}  // namespace headroom
