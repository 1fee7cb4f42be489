#include "test/gpu/verdict.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cmath>

namespace headroom {

bool Verdict::Require(bool holds, std::string otherwise) {
  if (!holds) reasons_.push_back(std::move(otherwise));
  return holds;
}

bool Verdict::RequireOk(const absl::Status& status, const std::string& what) {
  return Require(status.ok(), absl::StrCat(what, ": ", std::string(status.message())));
}

void Verdict::Skip(std::string why) {
  skipped_ = true;
  figures_ = {std::move(why)};
}

std::string Verdict::Line(const std::string& check) const {
  const char* const word = failed() ? "FAIL" : (skipped_ ? "skip" : "ok");
  std::string line = absl::StrFormat("%-4s  %-14s  %s", word, check, absl::StrJoin(figures_, ", "));
  if (failed()) absl::StrAppend(&line, figures_.empty() ? "" : " | ", absl::StrJoin(reasons_, "; "));
  // A line is what whoever reads this counts.
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

std::string Percent(double share) { return absl::StrFormat("%.2f %%", 100 * share); }

}  // namespace headroom
