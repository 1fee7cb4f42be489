#include "bench/simulator/workload.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/status_macros.h"

namespace headroom {
namespace {

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<double>> rows;

  std::optional<std::size_t> Find(const std::string& column) const {
    const auto found = std::find(columns.begin(), columns.end(), column);
    if (found == columns.end()) return std::nullopt;
    return static_cast<std::size_t>(found - columns.begin());
  }
};

absl::StatusOr<Table> ParseTable(const std::string& text) {
  Table table;
  int number = 0;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::string line : lines) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    const std::vector<std::string> fields = absl::StrSplit(line, ',');
    if (table.columns.empty()) {
      table.columns = fields;
      continue;
    }
    if (fields.size() != table.columns.size())
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": wrong number of fields"));
    std::vector<double>& row = table.rows.emplace_back();
    for (const std::string& field : fields) {
      if (!absl::SimpleAtod(field, &row.emplace_back()))
        return absl::InvalidArgumentError(absl::StrCat("line ", number, ": no number: ", field));
    }
  }
  if (table.rows.empty()) return absl::InvalidArgumentError("the file has no lines");
  return table;
}

// A quantile function with a step for each of `steps`, of lengths that occur so often.
LengthDistribution::Part StepsOf(std::vector<std::pair<double, double>> counted) {
  std::sort(counted.begin(), counted.end());
  double total = 0;
  for (const auto& [length, count] : counted) total += count;
  // Fine enough that what occurs once in ten thousand is there.
  constexpr int kSteps = 100'000;
  LengthDistribution::Part part;
  double seen = 0;
  auto at = counted.begin();
  for (int step = 0; step < kSteps; ++step) {
    const double wanted = (step + 0.5) / kSteps * total;
    while (std::next(at) != counted.end() && seen + at->second < wanted) seen += (at++)->second;
    part.lengths.push_back(at->first);
  }
  return part;
}

}  // namespace

LengthDistribution::LengthDistribution(std::vector<Part> parts, std::int64_t cut) : parts_(std::move(parts)), cut_(cut) {
  double total = 0;
  for (const Part& part : parts_) up_to_.push_back(total += part.weight);
  for (double& share : up_to_) share /= total;
}

std::int64_t LengthDistribution::Draw(Random& random) const {
  const double drawn = Uniform(random);
  std::size_t chosen = 0;
  while (chosen + 1 < parts_.size() && drawn >= up_to_[chosen]) ++chosen;
  const std::vector<double>& lengths = parts_[chosen].lengths;
  const double place = Uniform(random) * static_cast<double>(lengths.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const double above = lengths[std::min(below + 1, lengths.size() - 1)];
  const double length = lengths[below] + (above - lengths[below]) * (place - static_cast<double>(below));
  const std::int64_t whole = std::max<std::int64_t>(1, std::llround(length));
  return cut_ > 0 ? std::min(cut_, whole) : whole;
}

LengthDistribution LengthDistribution::Incident(std::int64_t cut) {
  return {{{0.80, {8, 127}}, {0.15, {128, 511}}, {0.05, {513, 3000}}}, cut};
}

absl::StatusOr<LengthDistribution> LengthDistribution::FromCsv(const std::string& text, const std::map<std::string, double>& mix,
                                                               std::int64_t cut) {
  ASSIGN_OR_RETURN(const Table table, ParseTable(text));
  std::vector<Part> parts;
  if (const auto length = table.Find("length")) {
    if (!mix.empty()) return absl::InvalidArgumentError("a mix is for a table of quantiles");
    const auto count = table.Find("count");
    std::vector<std::pair<double, double>> counted;
    for (const std::vector<double>& row : table.rows) counted.emplace_back(row[*length], count ? row[*count] : 1);
    parts.push_back(StepsOf(std::move(counted)));
    return LengthDistribution(std::move(parts), cut);
  }
  if (table.columns.front() != "quantile") return absl::InvalidArgumentError("the first line names neither length nor quantile");
  for (const auto& [name, weight] : mix) {
    if (!table.Find(name)) return absl::InvalidArgumentError(absl::StrCat("no column '", name, "'"));
  }
  for (std::size_t column = 1; column < table.columns.size(); ++column) {
    const auto weight = mix.find(table.columns[column]);
    if (!mix.empty() && weight == mix.end()) continue;
    Part& part = parts.emplace_back();
    part.weight = mix.empty() ? 1 : weight->second;
    for (const std::vector<double>& row : table.rows) part.lengths.push_back(row[column]);
  }
  return LengthDistribution(std::move(parts), cut);
}

std::vector<SimulatedRow> PoissonRows(const LengthDistribution& lengths, std::size_t rows, std::uint64_t seed) {
  Random random(seed);
  std::vector<SimulatedRow> made;
  made.reserve(rows);
  double at = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    at += -std::log1p(-Uniform(random));
    made.push_back({FromSeconds(at), lengths.Draw(random)});
  }
  return made;
}

std::vector<SimulatedRow> AtRate(std::vector<SimulatedRow> rows, double rows_per_second) {
  for (SimulatedRow& row : rows) row.arrives = FromSeconds(Seconds(row.arrives) / rows_per_second);
  return rows;
}

absl::StatusOr<std::vector<SimulatedRow>> TraceRows(const std::string& text, double speed, std::int64_t cut) {
  ASSIGN_OR_RETURN(const Table table, ParseTable(text));
  const auto arrival = table.Find("arrival_seconds");
  const auto length = table.Find("length");
  if (!arrival || !length) return absl::InvalidArgumentError("a trace has the columns arrival_seconds and length");
  std::vector<SimulatedRow> rows;
  for (const std::vector<double>& row : table.rows) {
    const std::int64_t whole = std::max<std::int64_t>(1, std::llround(row[*length]));
    rows.push_back({FromSeconds(row[*arrival] / speed), cut > 0 ? std::min(cut, whole) : whole});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const SimulatedRow& a, const SimulatedRow& b) { return a.arrives < b.arrives; });
  return rows;
}

}  // namespace headroom
