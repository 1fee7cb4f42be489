#include "metrics/metric_catalog.h"

#include <absl/strings/str_format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>

namespace headroom {
namespace {

const std::string kDocument = HEADROOM_SOURCE_DIR "/docs/metrics.md";

TEST_CASE("the catalog is in the order of its enumerators", "[metrics]") {
  for (const MetricDefinition& metric : MetricCatalog()) CHECK(&DefinitionOf(metric.metric) == &metric);
  CHECK(MetricCatalog().size() == static_cast<std::size_t>(Metric::kTritonPending) + 1);
}

TEST_CASE("names follow Prometheus' conventions and are there once", "[metrics]") {
  std::set<std::string> names;
  for (const MetricDefinition& metric : MetricCatalog()) {
    CAPTURE(metric.name);
    CHECK(names.insert(metric.name).second);
    // Triton's names do not follow them.
    if (metric.metric < Metric::kTritonSuccess) {
      CHECK(metric.name.starts_with("headroom_"));
      CHECK(metric.name.ends_with("_total") == (metric.kind == MetricKind::kCounter));
    } else {
      CHECK(metric.name.starts_with("nv_inference_"));
    }
    CHECK_FALSE(metric.help.empty());
    CHECK_FALSE(metric.help.ends_with("."));
  }
}

TEST_CASE("histograms have ascending bounds, times from 100 µs to 10 s", "[metrics]") {
  for (const MetricDefinition& metric : MetricCatalog()) {
    CAPTURE(metric.name);
    CHECK(metric.bounds.empty() == (metric.kind != MetricKind::kHistogram));
    // The page prints 16 digits: 0.56 would become 0.5600000000000001.
    for (const double bound : metric.bounds) CHECK(absl::StrFormat("%.16g", bound).size() < 9);
    CHECK(std::is_sorted(metric.bounds.begin(), metric.bounds.end(), std::less_equal<>()));
    if (metric.kind != MetricKind::kHistogram || !metric.name.ends_with("_seconds")) continue;
    CHECK(metric.bounds.front() == 0.0001);
    CHECK(metric.bounds.back() == 10);
    CHECK(metric.bounds.size() == 21);
  }
}

TEST_CASE("docs/metrics.md is the catalog's", "[metrics]") {
  std::ifstream file(kDocument);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  INFO("to write it anew, run the test [write-docs]");
  CHECK(text == CatalogAsMarkdown());
}

TEST_CASE("write docs/metrics.md", "[.write-docs]") {
  std::ofstream file(kDocument);
  file << CatalogAsMarkdown();
  CHECK(file.good());
}

}  // namespace
}  // namespace headroom
