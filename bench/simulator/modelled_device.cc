#include "bench/simulator/modelled_device.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/status_macros.h"

namespace headroom {
namespace {

using Json = nlohmann::json;

// What a server reserves beyond an estimate unless the model says otherwise.
constexpr double kMargin = 0.05;

class LinearMemory final : public MemoryEstimator {
 public:
  explicit LinearMemory(Bytes per_token) : per_token_(per_token) {}
  absl::StatusOr<Bytes> Peak(BatchShape shape) const override {
    ASSIGN_OR_RETURN(const std::int64_t bytes,
                     CheckedProduct(std::vector<std::int64_t>{per_token_.count, shape.rows, shape.length}));
    return Bytes{bytes};
  }

 private:
  const Bytes per_token_;
};

class MeasuredMemory final : public MemoryEstimator {
 public:
  MeasuredMemory(std::vector<LengthCurve> curves, DeviceKind kind)
      : measured_(std::move(curves), CalibratedEstimator::RoundingOn(kind)) {}
  absl::StatusOr<Bytes> Peak(BatchShape shape) const override {
    ASSIGN_OR_RETURN(const Bytes bytes, measured_.Peak(shape));
    return Scale(bytes, 1 + kMargin);
  }

 private:
  const CalibratedEstimator measured_;
};

Duration FromMicroseconds(double microseconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::micro>(microseconds));
}

LengthCurve CurveOf(const Json& json) {
  LengthCurve curve;
  curve.length = json.at("length").get<std::int64_t>();
  curve.smooth_below = json.at("smooth_below").get<bool>();
  curve.failed_rows = json.at("failed_rows").get<std::int64_t>();
  curve.failed_at_least = {json.at("failed_at_least_bytes").get<std::int64_t>()};
  for (const Json& point : json.at("points")) {
    curve.points.push_back({.rows = point.at("rows").get<std::int64_t>(),
                            .peak = {point.at("peak_bytes").get<std::int64_t>()},
                            .latency = FromMicroseconds(point.at("latency_us").get<double>())});
  }
  return curve;
}

// Throws what the library throws where it is no plan.
absl::StatusOr<Json> FirstDevice(const std::string& text, const std::string& name) {
  const Json plan = Json::parse(text);
  const Json& models = plan.at("models");
  if (name.empty() && models.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("the plan is of ", models.size(), " models: --model says which"));
  }
  for (const Json& model : models) {
    if (name.empty() || model.at("name") == name) return model.at("devices").at(0);
  }
  return absl::InvalidArgumentError(absl::StrCat("the plan has no model '", name, "'"));
}

}  // namespace

ModelledDevice ModelledDevice::Of(const Formula& formula, std::int64_t longest, std::int64_t most_rows) {
  // The formula is linear in rows at a length and in length at a number of rows, as what lies between points of curves is.
  std::vector<LengthCurve> curves;
  std::vector<std::int64_t> lengths = {1, longest};
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  for (const std::int64_t length : lengths) {
    LengthCurve& curve = curves.emplace_back();
    curve.length = length;
    curve.points.push_back({.rows = 1, .latency = formula.fixed + length * formula.per_token});
    if (most_rows > 1)
      curve.points.push_back({.rows = most_rows, .latency = formula.fixed + most_rows * length * formula.per_token});
  }
  return {CalibratedLatency(curves), std::make_shared<const LinearMemory>(formula.bytes_per_token)};
}

absl::StatusOr<ModelledDevice> ModelledDevice::FromPlan(const std::string& json, const std::string& model) {
  try {
    ASSIGN_OR_RETURN(const Json device, FirstDevice(json, model));
    if (!device.at("computes").get<bool>())
      return absl::InvalidArgumentError("the plan is of a card that is not there: it has no times");
    std::vector<LengthCurve> curves;
    for (const Json& curve : device.at("calibration")) curves.push_back(CurveOf(curve));
    if (curves.empty()) return absl::InvalidArgumentError("the plan tells of no measurement");
    const DeviceKind kind = device.at("device").get<std::string>().starts_with("cuda") ? DeviceKind::kCuda : DeviceKind::kCpu;
    ModelledDevice made(CalibratedLatency(curves), std::make_shared<const MeasuredMemory>(curves, kind));
    for (const Json& bucket : device.at("buckets")) made.buckets_.push_back(bucket.at("bucket").get<std::int64_t>());
    made.budget_ = {device.at("budget_bytes").get<std::int64_t>()};
    made.kind_ = kind;
    return made;
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("no output of `headroom plan --json`: ", error.what()));
  }
}

}  // namespace headroom
