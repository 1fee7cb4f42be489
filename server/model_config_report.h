// What is wrong, and what is worth saying, about one model's configuration: gathered, so that all of it is told at once.
#pragma once

#include <string>
#include <vector>

namespace headroom {

// Each line is "field.path[index]: words".
struct ConfigReport {
  std::vector<std::string> faults;
  std::vector<std::string> warnings;

  void Fault(const std::string& field, const std::string& words) { faults.push_back(field + ": " + words); }
  void Warn(const std::string& field, const std::string& words) { warnings.push_back(field + ": " + words); }
};

}  // namespace headroom
