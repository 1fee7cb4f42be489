#include "memory/calibration_file.h"

#include <absl/strings/str_cat.h>

#include <fstream>
#include <sstream>

namespace headroom {
namespace {

constexpr const char* kFormat = "headroom-calibration 3";

std::string ToText(const std::string& key, const Calibration& calibration) {
  std::ostringstream out;
  out << kFormat << '\n' << key << '\n';
  out << "limit " << calibration.limit.count << ' ' << calibration.cut_short << '\n';
  for (const LengthCurve& curve : calibration.curves) {
    out << "length " << curve.length << ' ' << curve.failed_rows << ' ' << curve.failed_at_least.count << ' ' << curve.smooth_below
        << ' ' << curve.points.size() << '\n';
    for (const Measurement& point : curve.points) {
      out << "point " << point.rows << ' ' << point.peak.count << ' ' << point.tensors.count << ' ' << point.latency.count()
          << '\n';
    }
  }
  out << "end\n";
  return out.str();
}

bool ReadCurve(std::istream& in, LengthCurve& curve) {
  std::size_t points = 0;
  if (!(in >> curve.length >> curve.failed_rows >> curve.failed_at_least.count >> curve.smooth_below >> points) ||
      points > 100000) {
    return false;
  }
  std::int64_t rows = 0;
  for (; points > 0; --points) {
    std::string word;
    Measurement point;
    Duration::rep latency = 0;
    if (!(in >> word >> point.rows >> point.peak.count >> point.tensors.count >> latency) || word != "point" ||
        point.rows <= rows || point.peak.count < 0 || point.tensors.count < 0) {
      return false;
    }
    rows = point.rows;
    point.latency = Duration(latency);
    curve.points.push_back(point);
  }
  return true;
}

bool ReadBody(std::istream& in, Calibration& calibration) {
  std::string word;
  if (!(in >> word >> calibration.limit.count >> calibration.cut_short) || word != "limit") return false;
  while (in >> word && word == "length") {
    LengthCurve curve;
    if (!ReadCurve(in, curve)) return false;
    if (!calibration.curves.empty() && calibration.curves.back().length >= curve.length) return false;
    calibration.curves.push_back(std::move(curve));
  }
  return word == "end" && !calibration.curves.empty();
}

}  // namespace

absl::Status KeepCalibration(const std::filesystem::path& file, const std::string& key, const Calibration& calibration) {
  std::filesystem::path part = file;
  part += ".part";
  std::error_code error;
  {
    std::ofstream out(part, std::ios::trunc);
    out << ToText(key, calibration);
    if (!out.flush()) {
      // On a full disk a part of it has been written.
      std::filesystem::remove(part, error);
      return absl::InternalError("the calibration cannot be kept: its folder is not writable, or its disk is full");
    }
  }
  std::filesystem::rename(part, file, error);
  if (error) return absl::InternalError(absl::StrCat("the calibration cannot be kept: ", error.message()));
  return absl::OkStatus();
}

absl::StatusOr<Calibration> KeptCalibration(const std::filesystem::path& file, const std::string& key) {
  std::ifstream in(file);
  std::string format;
  std::string kept_key;
  Calibration calibration;
  if (!std::getline(in, format) || format != kFormat || !std::getline(in, kept_key) || kept_key != key ||
      !ReadBody(in, calibration)) {
    return absl::NotFoundError("no calibration is kept for this model on this device with these options");
  }
  return calibration;
}

bool IsEnough(const Calibration& kept, Bytes limit) { return !kept.cut_short || limit <= kept.limit; }

}  // namespace headroom
