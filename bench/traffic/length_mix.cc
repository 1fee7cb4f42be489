#include "bench/traffic/length_mix.h"

#include <absl/status/status.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/status_macros.h"

namespace headroom {
namespace {

struct Part {
  double share;
  const char* column;
};
constexpr Part kSearch[] = {{0.3, "msmarco_q"}, {0.2, "sst2"}, {0.1, "squad_q"}, {0.2, "squad_p"}, {0.2, "squad_pair"}};

struct Range {
  double share;
  std::int64_t low;
  std::int64_t high;
};
constexpr Range kIncident[] = {{0.8, 8, 127}, {0.15, 128, 511}, {0.05, 513, 3000}};

// The part that a number in [0, 1) falls into; parts' shares add up to 1.
template <class P, std::size_t n>
const P& PartOf(const P (&parts)[n], double random) {
  for (const P& part : parts) {
    if (random < part.share) return part;
    random -= part.share;
  }
  return parts[n - 1];  // the sum of the shares is 1 but for rounding
}

absl::StatusOr<LengthDraw> SearchDraw(absl::string_view quantiles) {
  if (quantiles.empty()) return absl::InvalidArgumentError("the search mix needs a table of quantiles");
  ASSIGN_OR_RETURN(QuantileTable parsed, QuantileTable::Parse(quantiles));
  for (const Part& part : kSearch) {
    if (!parsed.Has(part.column)) return absl::InvalidArgumentError(absl::StrCat("the table has no column ", part.column));
  }
  // Shared: a std::function is copied, a table need not be.
  return LengthDraw([table = std::make_shared<const QuantileTable>(std::move(parsed))](Random& random) {
    const Part& part = PartOf(kSearch, Uniform(random));
    return table->At(part.column, Uniform(random));
  });
}

std::int64_t DrawIncident(Random& random) {
  const Range& range = PartOf(kIncident, Uniform(random));
  return UniformInteger(random, range.low, range.high);
}

absl::StatusOr<LengthDraw> EvenDraw(const std::string& mix) {
  const std::vector<std::string> ends = absl::StrSplit(mix, '-');
  std::int64_t low = 0;
  std::int64_t high = 0;
  if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &low) || !absl::SimpleAtoi(ends.back(), &high) || low < 1 || high < low) {
    return absl::InvalidArgumentError(absl::StrCat("a mix is search, incident, LOW-HIGH or a length, not '", mix, "'"));
  }
  return LengthDraw([low, high](Random& random) { return UniformInteger(random, low, high); });
}

absl::StatusOr<LengthDraw> UncutDraw(const std::string& mix, absl::string_view quantiles) {
  if (mix == "search") return SearchDraw(quantiles);
  if (mix == "incident") return LengthDraw(DrawIncident);
  return EvenDraw(mix);
}

}  // namespace

absl::StatusOr<QuantileTable> QuantileTable::Parse(absl::string_view text) {
  QuantileTable table;
  std::vector<std::string> names;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    const std::vector<std::string> fields = absl::StrSplit(line, ',');
    if (names.empty()) {
      if (fields.size() < 2 || fields.front() != "quantile") {
        return absl::InvalidArgumentError("a table of quantiles begins with quantile,NAME");
      }
      names = fields;
      continue;
    }
    const auto wrong = [number] { return absl::InvalidArgumentError(absl::StrCat("not a line of quantiles: line ", number)); };
    double quantile = 0;
    if (fields.size() != names.size() || !absl::SimpleAtod(fields.front(), &quantile)) return wrong();
    if (!table.quantiles_.empty() && !(quantile > table.quantiles_.back())) return wrong();
    table.quantiles_.push_back(quantile);
    for (std::size_t i = 1; i < fields.size(); ++i) {
      double length = 0;
      if (!absl::SimpleAtod(fields[i], &length) || !(length >= 0)) return wrong();
      table.columns_[names[i]].push_back(length);
    }
  }
  if (table.quantiles_.size() < 2 || table.quantiles_.front() != 0 || table.quantiles_.back() != 1) {
    return absl::InvalidArgumentError("a table of quantiles goes from 0 to 1");
  }
  return table;
}

std::int64_t QuantileTable::At(const std::string& name, double share) const {
  const std::vector<double>& lengths = columns_.at(name);
  const auto above = std::upper_bound(quantiles_.begin() + 1, quantiles_.end() - 1, share);
  const auto i = static_cast<std::size_t>(above - quantiles_.begin());
  const double along = (share - quantiles_[i - 1]) / (quantiles_[i] - quantiles_[i - 1]);
  return std::max<std::int64_t>(1, std::llround(lengths[i - 1] + along * (lengths[i] - lengths[i - 1])));
}

absl::StatusOr<LengthDraw> MakeLengthDraw(const std::string& mix, absl::string_view quantiles, std::int64_t cut) {
  ASSIGN_OR_RETURN(LengthDraw uncut, UncutDraw(mix, quantiles));
  if (cut <= 0) return uncut;
  return LengthDraw([uncut = std::move(uncut), cut](Random& random) { return std::min(uncut(random), cut); });
}

std::vector<std::int64_t> DrawLengths(const LengthDraw& draw, std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int64_t> lengths(count);
  for (std::int64_t& length : lengths) length = draw(random);
  return lengths;
}

}  // namespace headroom
