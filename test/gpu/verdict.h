// What one check saw, and whether it is content; printed as one line.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <string>
#include <vector>

namespace headroom {

class Verdict {
 public:
  // A figure for the line, in the order seen: "loads 1".
  void Saw(std::string figure) { figures_.push_back(std::move(figure)); }
  // `otherwise` is a reason to fail unless `holds`; the check may go on. Whether it holds.
  bool Require(bool holds, std::string otherwise);
  // The same for a status.
  bool RequireOk(const absl::Status& status, const std::string& what);
  // There is nothing to be checked on this device.
  void Skip(std::string why);

  bool failed() const { return !reasons_.empty(); }
  // "ok    burst           256 rows answered, …", or FAIL and the reasons behind the figures, or skip.
  std::string Line(const std::string& check) const;

 private:
  std::vector<std::string> figures_;
  std::vector<std::string> reasons_;
  bool skipped_ = false;
};

// The value below which a share of `values` lies (0.5: the median), by the nearest rank; 0 of none.
double Quantile(std::vector<double> values, double share);

// "1.23 %" of 0.0123.
std::string Percent(double share);

}  // namespace headroom
