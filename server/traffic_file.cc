#include "server/traffic_file.h"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>

#include "base/status_macros.h"

namespace headroom {
namespace {

constexpr std::size_t kQuoted = 40;
constexpr double kMostCount = 1e15;  // far inside what a double counts exactly

std::string Quoted(absl::string_view text) {
  const bool whole = text.size() <= kQuoted;
  return absl::StrCat("\"", absl::CEscape(text.substr(0, kQuoted)), whole ? "\"" : "…\"");
}

// Digits only: no sign, no blank.
std::optional<std::int64_t> Whole(absl::string_view text) {
  std::int64_t value = 0;
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  return digits && absl::SimpleAtoi(text, &value) ? std::optional(value) : std::nullopt;
}

std::optional<double> Number(absl::string_view text) {
  double value = 0;
  return absl::SimpleAtod(text, &value) && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

// One file being read.
class TrafficReader {
 public:
  TrafficReader(const std::string& name, const ColumnWeights& mix, const TrafficLimits& limits)
      : name_(name), mix_(mix), limits_(limits) {}

  absl::StatusOr<TrafficLengths> Read(absl::string_view text) {
    if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
    std::int64_t line = 0;
    for (absl::string_view words : absl::StrSplit(text, '\n')) {
      ++line;
      words = absl::StripAsciiWhitespace(words);
      if (words.empty()) continue;
      std::vector<absl::string_view> fields = absl::StrSplit(words, ',');
      for (absl::string_view& field : fields) field = absl::StripAsciiWhitespace(field);
      if (columns_.empty()) {
        ReadHeader(line, fields);
        if (faults_ > 0) break;  // no line makes sense without its columns
        continue;
      }
      if (++rows_ > limits_.rows) {
        Fault(line, absl::StrCat("more than ", limits_.rows, " rows"));
        break;
      }
      if (fields.size() != columns_.size()) {
        Fault(line, absl::StrCat("there must be ", columns_.size(), " columns as in the first line, not ", fields.size()));
        continue;
      }
      ReadRow(line, fields);
    }
    return Finish(line);
  }

 private:
  void Fault(std::int64_t line, const std::string& what) {
    if (++faults_ > limits_.faults) return;
    told_.push_back(absl::StrCat(name_, ":", line, ": ", what));
  }

  std::optional<std::size_t> ColumnOf(absl::string_view column) const {
    const auto found = std::find(columns_.begin(), columns_.end(), column);
    if (found == columns_.end()) return std::nullopt;
    return static_cast<std::size_t>(found - columns_.begin());
  }

  void ReadHeader(std::int64_t line, const std::vector<absl::string_view>& fields) {
    for (const absl::string_view field : fields) columns_.emplace_back(field);
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (std::find(columns_.begin(), columns_.begin() + static_cast<std::ptrdiff_t>(i), columns_[i]) !=
          columns_.begin() + static_cast<std::ptrdiff_t>(i)) {
        Fault(line, absl::StrCat("the column ", Quoted(columns_[i]), " comes twice"));
      }
    }
    length_ = ColumnOf("length");
    if (length_) {
      count_ = ColumnOf("count");
      arrival_ = ColumnOf("arrival_seconds");
      traffic_.form = count_ ? "histogram" : "trace";
      if (!mix_.empty()) Fault(line, "--traffic-mix is for a table of quantiles, this one has lengths");
    } else if (columns_.front() == "quantile" && columns_.size() > 1) {
      traffic_.form = "quantiles";
      ChooseColumns(line);
    } else {
      Fault(line, absl::StrCat(R"(the columns must hold "length", or begin with "quantile", not )",
                               Quoted(absl::StrJoin(columns_, ","))));
    }
  }

  void ChooseColumns(std::int64_t line) {
    if (static_cast<std::int64_t>(columns_.size()) > limits_.quantile_columns + 1) {
      Fault(line, absl::StrCat("more than ", limits_.quantile_columns, " quantile functions"));
      return;
    }
    for (const auto& [column, weight] : mix_) {
      const auto at = ColumnOf(column);
      if (!at || *at == 0) Fault(line, absl::StrCat("--traffic-mix names ", Quoted(column), ", and there is no such column"));
    }
    double sum = 0;
    for (const auto& [column, weight] : mix_) sum += weight;
    for (std::size_t i = 1; i < columns_.size(); ++i) {
      const auto given = mix_.find(columns_[i]);
      const double share = mix_.empty()          ? 1 / static_cast<double>(columns_.size() - 1)
                           : given == mix_.end() ? 0
                                                 : given->second / sum;
      functions_.push_back({share, 0});
      if (share > 0) traffic_.columns.push_back(columns_[i]);
    }
  }

  void ReadRow(std::int64_t line, const std::vector<absl::string_view>& fields) {
    if (!functions_.empty()) {
      ReadQuantile(line, fields);
      return;
    }
    const auto length = Length(line, "length", fields[*length_]);
    double weight = 1;
    if (count_) {
      const auto count = Number(fields[*count_]);
      if (!count || *count < 0 || *count > kMostCount) {
        Fault(line, absl::StrCat("count must be a number from 0 to ", kMostCount, ", not ", Quoted(fields[*count_])));
      }
      weight = count.value_or(0);
    }
    if (arrival_) CheckArrival(line, fields[*arrival_]);
    if (length && weight > 0) Add(*length, weight);
  }

  void CheckArrival(std::int64_t line, absl::string_view field) {
    const auto arrival = Number(field);
    if (!arrival || *arrival < 0) {
      Fault(line, absl::StrCat("arrival_seconds must be a number from 0, not ", Quoted(field)));
    } else if (*arrival < last_arrival_) {
      Fault(line, absl::StrCat("arrival_seconds must not fall: ", *arrival, " after ", last_arrival_));
    } else {
      last_arrival_ = *arrival;
    }
  }

  std::optional<std::int64_t> Length(std::int64_t line, absl::string_view column, absl::string_view field) {
    const auto length = Whole(field);
    if (length && *length >= 1 && *length <= limits_.length) return length;
    Fault(line, absl::StrCat(column, " must be a whole number from 1 to ", limits_.length, ", not ", Quoted(field)));
    return std::nullopt;
  }

  void ReadQuantile(std::int64_t line, const std::vector<absl::string_view>& fields) {
    const auto quantile = Number(fields[0]);
    const bool first = !last_quantile_.has_value();
    if (!quantile || *quantile < 0 || *quantile > 1) {
      Fault(line, absl::StrCat("quantile must be a number from 0 to 1, not ", Quoted(fields[0])));
      return;
    }
    if (first && *quantile != 0) Fault(line, absl::StrCat("the first quantile must be 0, not ", *quantile));
    if (!first && *quantile <= *last_quantile_) {
      Fault(line, absl::StrCat("quantile must rise: ", *quantile, " after ", *last_quantile_));
    }
    for (std::size_t i = 0; i < functions_.size(); ++i) {
      const auto length = Length(line, columns_[i + 1], fields[i + 1]);
      if (!length) continue;
      Function& function = functions_[i];
      if (*length < function.last) {
        Fault(line, absl::StrCat(columns_[i + 1], " must not fall: ", *length, " after ", function.last));
      } else if (!first && faults_ == 0 && function.share > 0) {
        Spread(function.last, *length, function.share * (*quantile - *last_quantile_));
      }
      function.last = std::max(function.last, *length);
    }
    last_quantile_ = *quantile;
  }

  // A real number drawn evenly between the two, rounded: the ends come half as often as what lies between.
  void Spread(std::int64_t from, std::int64_t to, double weight) {
    if (from == to) {
      Add(from, weight);
      return;
    }
    const double each = weight / static_cast<double>(to - from);
    for (std::int64_t length = from; length <= to; ++length) Add(length, length == from || length == to ? each / 2 : each);
  }

  void Add(std::int64_t length, double weight) {
    traffic_.weights[length] += weight;
    traffic_.total += weight;
  }

  absl::StatusOr<TrafficLengths> Finish(std::int64_t line) {
    if (faults_ == 0 && columns_.empty()) Fault(line, "the file is empty");
    if (faults_ == 0 && last_quantile_ && *last_quantile_ != 1) {
      Fault(line, absl::StrCat("the last quantile must be 1, not ", *last_quantile_));
    }
    if (faults_ == 0 && traffic_.weights.empty()) Fault(line, "there is no row");
    if (faults_ == 0) return std::move(traffic_);
    if (faults_ > told_.size()) told_.push_back(absl::StrCat(name_, ": and ", faults_ - told_.size(), " faults more"));
    return absl::InvalidArgumentError(absl::StrJoin(told_, "\n"));
  }

  struct Function {
    double share = 0;
    std::int64_t last = 0;
  };

  const std::string& name_;
  const ColumnWeights& mix_;
  const TrafficLimits& limits_;
  std::vector<std::string> columns_;
  std::optional<std::size_t> length_;
  std::optional<std::size_t> count_;
  std::optional<std::size_t> arrival_;
  std::vector<Function> functions_;  // of the columns after the first
  std::optional<double> last_quantile_;
  double last_arrival_ = 0;
  std::int64_t rows_ = 0;
  std::size_t faults_ = 0;
  std::vector<std::string> told_;
  TrafficLengths traffic_;
};

}  // namespace

absl::StatusOr<ColumnWeights> ParseColumnWeights(const std::string& text) {
  ColumnWeights weights;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<std::string, std::string> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto weight = Number(sides.second);
    if (sides.first.empty() || !weight || *weight <= 0 || *weight > kMostCount) {
      return absl::InvalidArgumentError(absl::StrCat("must be COLUMN=WEIGHT,... with weights above 0, not ", Quoted(text)));
    }
    if (!weights.emplace(sides.first, *weight).second) {
      return absl::InvalidArgumentError(absl::StrCat("names ", Quoted(sides.first), " twice"));
    }
  }
  return weights;
}

absl::StatusOr<TrafficLengths> ParseTraffic(const std::string& name, const std::string& text, const ColumnWeights& mix,
                                            const TrafficLimits& limits) {
  return TrafficReader(name, mix, limits).Read(text);
}

absl::StatusOr<TrafficLengths> ReadTraffic(const std::string& path, const ColumnWeights& mix, const TrafficLimits& limits) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("--traffic: ", path, " cannot be opened"));
  std::string text(static_cast<std::size_t>(limits.file.count) + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return absl::NotFoundError(absl::StrCat("--traffic: ", path, " cannot be read"));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (static_cast<std::int64_t>(text.size()) > limits.file.count) {
    return absl::InvalidArgumentError(absl::StrCat("--traffic: ", path, " is larger than ", ToString(limits.file)));
  }
  return ParseTraffic(path, text, mix, limits);
}

std::int64_t LengthAt(const TrafficLengths& traffic, double quantile) {
  // What the sum of many small weights loses must not move the answer up by a length.
  const double wanted = quantile * traffic.total * (1 - 1e-12);
  double seen = 0;
  for (const auto& [length, weight] : traffic.weights) {
    seen += weight;
    if (seen >= wanted) return length;
  }
  return traffic.weights.empty() ? 0 : traffic.weights.rbegin()->first;
}

}  // namespace headroom
