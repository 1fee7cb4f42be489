#include "memory/calibration_file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

namespace headroom {
namespace {

constexpr const char* kKey = "model 1a2b; device fake; margin 0.05";

// A folder of its own that goes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "headroom-test-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = path;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

Calibration Example() {
  Calibration calibration;
  calibration.limit = MiB(50);
  calibration.cut_short = true;
  LengthCurve first;
  first.length = 32;
  first.points = {{1, Bytes{1000}, Duration{5}, Bytes{900}}, {2, Bytes{2000}, Duration{6}, Bytes{1900}}};
  LengthCurve second;
  second.length = 64;
  second.points = {{1, Bytes{3000}, Duration{7}, Bytes{2900}}};
  second.failed_rows = 2;
  second.failed_at_least = Bytes{60000000};
  second.smooth_below = true;
  LengthCurve third;
  third.length = 128;
  third.failed_rows = 1;
  third.failed_at_least = Bytes{70000000};
  calibration.curves = {first, second, third};
  return calibration;
}

void CheckSame(const Calibration& a, const Calibration& b) {
  CHECK(a.limit == b.limit);
  CHECK(a.cut_short == b.cut_short);
  REQUIRE(a.curves.size() == b.curves.size());
  for (std::size_t i = 0; i < a.curves.size(); ++i) {
    CAPTURE(i);
    CHECK(a.curves[i].length == b.curves[i].length);
    CHECK(a.curves[i].failed_rows == b.curves[i].failed_rows);
    CHECK(a.curves[i].failed_at_least == b.curves[i].failed_at_least);
    CHECK(a.curves[i].smooth_below == b.curves[i].smooth_below);
    REQUIRE(a.curves[i].points.size() == b.curves[i].points.size());
    for (std::size_t p = 0; p < a.curves[i].points.size(); ++p) {
      CHECK(a.curves[i].points[p].rows == b.curves[i].points[p].rows);
      CHECK(a.curves[i].points[p].peak == b.curves[i].points[p].peak);
      CHECK(a.curves[i].points[p].tensors == b.curves[i].points[p].tensors);
      CHECK(a.curves[i].points[p].latency == b.curves[i].points[p].latency);
    }
  }
}

std::string Contents(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void Write(const std::filesystem::path& file, const std::string& text) { std::ofstream(file, std::ios::trunc) << text; }

TEST_CASE("a kept calibration comes back as it was", "[calibration_file]") {
  const TemporaryFolder folder;
  REQUIRE(KeepCalibration(folder / "kept", kKey, Example()).ok());
  const auto kept = KeptCalibration(folder / "kept", kKey);
  REQUIRE(kept.ok());
  CheckSame(*kept, Example());
  // Nothing else is left beside it.
  CHECK_FALSE(std::filesystem::exists(folder / "kept.part"));
}

TEST_CASE("keeping again replaces what was kept", "[calibration_file]") {
  const TemporaryFolder folder;
  REQUIRE(KeepCalibration(folder / "kept", "an older key", Example()).ok());
  Calibration changed = Example();
  changed.limit = MiB(60);
  REQUIRE(KeepCalibration(folder / "kept", kKey, changed).ok());
  CheckSame(KeptCalibration(folder / "kept", kKey).value(), changed);
}

TEST_CASE("another key, or no file, is not found", "[calibration_file]") {
  const TemporaryFolder folder;
  REQUIRE(KeepCalibration(folder / "kept", kKey, Example()).ok());
  CHECK(KeptCalibration(folder / "kept", std::string(kKey) + "!").status().code() == absl::StatusCode::kNotFound);
  CHECK(KeptCalibration(folder / "kept", "").status().code() == absl::StatusCode::kNotFound);
  CHECK(KeptCalibration(folder / "none", kKey).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("a file that is cut anywhere is not found", "[calibration_file]") {
  const TemporaryFolder folder;
  REQUIRE(KeepCalibration(folder / "kept", kKey, Example()).ok());
  const std::string whole = Contents(folder / "kept");
  const std::size_t end = whole.rfind("end");
  for (std::size_t length = 0; length < end + 3; ++length) {
    Write(folder / "cut", whole.substr(0, length));
    CAPTURE(whole.substr(0, length));
    REQUIRE(KeptCalibration(folder / "cut", kKey).status().code() == absl::StatusCode::kNotFound);
  }
}

TEST_CASE("a file without one of its lines is not found", "[calibration_file]") {
  const TemporaryFolder folder;
  REQUIRE(KeepCalibration(folder / "kept", kKey, Example()).ok());
  std::vector<std::string> lines;
  std::istringstream in(Contents(folder / "kept"));
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  for (std::size_t left_out = 0; left_out < lines.size(); ++left_out) {
    // The last curve has no points: without its line a whole, shorter file is left. Only cutting makes such files.
    if (lines[left_out].starts_with("length 128")) continue;
    std::string text;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (i != left_out) text += lines[i] + "\n";
    }
    Write(folder / "holed", text);
    CAPTURE(lines[left_out]);
    CHECK(KeptCalibration(folder / "holed", kKey).status().code() == absl::StatusCode::kNotFound);
  }
}

TEST_CASE("what is not a calibration is not found", "[calibration_file]") {
  const TemporaryFolder folder;
  const std::string head = std::string("headroom-calibration 3\n") + kKey + "\n";
  const std::string text = GENERATE_COPY(std::string("\0\1\2", 3),
                                         std::string("headroom-calibration 4\n") + kKey + "\nlimit 1 0\nlength 8 0 0 0 0\nend\n",
                                         // An earlier version, which had another field.
                                         std::string("headroom-calibration 2\n") + kKey + "\nlimit 1 0\nlength 8 0 0 0 0\nend\n",
                                         head + "limit 1 0\nend\n",                                                  // no curve
                                         head + "limit 1 0\nlength 8 0 0 0 1\npoint 1 -5 5 0\nend\n",                // negative
                                         head + "limit 1 0\nlength 8 0 0 0 1\npoint 1 5 -5 0\nend\n",                // negative
                                         head + "limit 1 0\nlength 8 0 0 0 2\npoint 2 5 5 0\npoint 1 5 5 0\nend\n",  // rows go down
                                         head + "limit 1 0\nlength 8 0 0 0 0\nlength 8 0 0 0 0\nend\n",  // a length twice
                                         head + "limit 1 0\nlength 8 0 0 0 99999999999\n",  // a count that would take all memory
                                         head + "limit x 0\nlength 8 0 0 0 0\nend\n");
  Write(folder / "foreign", text);
  CAPTURE(text);
  CHECK(KeptCalibration(folder / "foreign", kKey).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("a folder that is not there is told, without its path", "[calibration_file]") {
  const TemporaryFolder folder;
  const auto status = KeepCalibration(folder / "missing/kept", kKey, Example());
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()), !Catch::Contains("headroom-test"));
}

TEST_CASE("what was kept is enough unless more memory would tell more", "[calibration_file]") {
  Calibration kept;
  kept.limit = MiB(50);
  const auto [cut_short, limit, enough] = GENERATE(table<bool, Bytes, bool>({
      {false, MiB(40), true},
      {false, MiB(60), true},
      {true, MiB(40), true},
      {true, MiB(50), true},
      {true, MiB(51), false},
  }));
  kept.cut_short = cut_short;
  CHECK(IsEnough(kept, limit) == enough);
}

}  // namespace
}  // namespace headroom
