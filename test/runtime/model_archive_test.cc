#include "runtime/model_archive.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {
namespace {

std::string Little(std::uint64_t value, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

std::uint32_t CrcOf(std::string_view text) { return Crc32({reinterpret_cast<const unsigned char*>(text.data()), text.size()}); }

struct Record {
  std::string name;
  std::string data;
  std::uint16_t method = 0;
  std::uint64_t unpacked = 0;  // of one that is compressed
};

// An archive as libtorch writes it: sizes behind the data, data aligned by 'Z's, a 64-bit end beside the plain one.
std::string Archive(const std::vector<Record>& records) {
  std::string file;
  std::string directory;
  for (const Record& record : records) {
    const std::uint64_t at = file.size();
    const std::uint64_t unpacked = record.method == 0 ? record.data.size() : record.unpacked;
    const std::string common = Little(0x0808, 2) + Little(record.method, 2) + Little(0, 4);
    const std::string figures = Little(CrcOf(record.data), 4) + Little(record.data.size(), 4) + Little(unpacked, 4);
    file +=
        "PK\x03\x04" + Little(0, 2) + common + std::string(12, '\0') + Little(record.name.size(), 2) + Little(9, 2) + record.name;
    file += "FB" + Little(5, 2) + "ZZZZZ" + record.data + "PK\x07\x08" + figures;
    directory += "PK\x01\x02" + Little(0, 4) + common + figures + Little(record.name.size(), 2) + std::string(12, '\0') +
                 Little(at, 4) + record.name;
  }
  const std::uint64_t at = file.size();
  const std::uint64_t count = records.size();
  file += directory;
  const std::uint64_t end64 = file.size();
  file += "PK\x06\x06" + Little(44, 8) + Little(0x2d031e, 4) + Little(0, 8) + Little(count, 8) + Little(count, 8) +
          Little(directory.size(), 8) + Little(at, 8);
  file += "PK\x06\x07" + Little(0, 4) + Little(end64, 8) + Little(1, 4);
  file += "PK\x05\x06" + Little(0, 4) + Little(count, 2) + Little(count, 2) + Little(directory.size(), 4) + Little(at, 4) +
          Little(0, 2);
  return file;
}

// A file in memory.
class Held {
 public:
  explicit Held(const std::string& content) : descriptor_(memfd_create("archive", MFD_CLOEXEC)) {
    REQUIRE(write(descriptor_, content.data(), content.size()) == static_cast<ssize_t>(content.size()));
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { close(descriptor_); }
  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

absl::Status Checked(const std::string& content) {
  const Held file(content);
  return CheckModelArchive(file.descriptor()).status();
}

// No size is one bit from 0, which a header may say instead.
const std::vector<Record> kRecords = {{"m/data/0", std::string(300, 'w')}, {"m/version", "10\n"}, {"m/empty", ""}};

TEST_CASE("the checksum is that of zip archives", "[model_archive]") {
  CHECK(CrcOf("") == 0);
  CHECK(CrcOf("123456789") == 0xcbf43926);
  CHECK(CrcOf("The quick brown fox jumps over the lazy dog") == 0x414fa339);
  const std::string text = "The quick brown fox jumps over the lazy dog";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
    CHECK(Crc32({bytes + cut, text.size() - cut}, Crc32({bytes, cut})) == 0x414fa339);
  }
}

TEST_CASE("an archive as libtorch writes it is whole", "[model_archive]") { CHECK(Checked(Archive(kRecords)).ok()); }

TEST_CASE("what is stored compressed is left to whoever unpacks it", "[model_archive]") {
  const Held file(Archive({{"m/data/0", "weights"}, {"m/code.py", "packed", 8, 700}}));
  const auto packed = CheckModelArchive(file.descriptor());
  REQUIRE(packed.ok());
  REQUIRE(packed->size() == 1);
  CHECK((*packed)[0].name == "m/code.py");
  CHECK((*packed)[0].size == Bytes{700});
  CHECK((*packed)[0].crc == CrcOf("packed"));
  CHECK_FALSE(Checked(Archive({{"m/code.py", "packed", 8, 300U << 20U}})).ok());
  CHECK_FALSE(Checked(Archive({{"m/code.py", "packed", 9, 700}})).ok());
}

TEST_CASE("the text says what is wrong, and no path", "[model_archive]") {
  const std::string whole = Archive(kRecords);
  const std::size_t weights = whole.find("www");
  struct Case {
    std::string content;
    std::string says;
  };
  std::string flipped = whole;
  flipped[weights + 7] = 'v';
  std::string renamed = whole;
  renamed[renamed.rfind("m/version")] = '\n';
  for (const Case& c : std::vector<Case>{
           {"", "the model file is empty"},
           {"MZ", "the model file is not a TorchScript module (it is no zip archive)"},
           {"PK\x03\x04", "it is too short to be one"},
           {whole.substr(0, whole.size() / 2), "its end is missing, as where a copy was broken off"},
           {flipped, "its record 'm/data/0' does not have its checksum"},
           {renamed, "a record is not as the directory says"},
           {Archive({{"m/a", "x"}, {"m/a", "x"}}), "its record 'm/a' is there twice"},
       }) {
    const absl::Status status = Checked(c.content);
    CAPTURE(c.says);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find(c.says) != std::string::npos);
  }
}

TEST_CASE("every cut is found", "[model_archive]") {
  const std::string whole = Archive(kRecords);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(Checked(whole.substr(0, size)).ok());
  }
  CHECK_FALSE(Checked(whole + "x").ok());
  CHECK_FALSE(Checked("x" + whole).ok());
}

// Where nothing that anybody reads stands.
bool IsIdle(const std::string& whole, std::size_t at) {
  const auto within = [&](std::string_view magic, std::size_t from, std::size_t to) {
    for (std::size_t found = whole.find(magic); found != std::string::npos; found = whole.find(magic, found + 1)) {
      if (at >= found + from && at < found + to) return true;
    }
    return false;
  };
  // Versions and attributes.
  return within("PK\x03\x04", 4, 6) || within("PK\x01\x02", 4, 8) || within("PK\x01\x02", 36, 42) || within("PK\x06\x06", 12, 16);
}

TEST_CASE("every flipped bit is found", "[model_archive]") {
  const std::string whole = Archive(kRecords);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ 1 << bit);
      CAPTURE(at, bit);
      CHECK(Checked(flipped).ok() == IsIdle(whole, at));
    }
  }
}

TEST_CASE("whatever the bytes are, the check ends", "[model_archive]") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::string whole = Archive(kRecords);
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = whole;
    // Fields are what matters: mostly in the headers and at the end.
    for (int change = 0; change < 4; ++change) {
      const std::size_t at = random() % 3 == 0 ? random() % changed.size()
                                               : changed.size() - 1 - random() % std::min<std::size_t>(300, changed.size());
      changed[at] = static_cast<char>(random() % 4 == 0 ? 0xff : random());
    }
    if (random() % 4 == 0) changed.resize(random() % changed.size());
    static_cast<void>(Checked(changed));
  }
}

TEST_CASE("what cannot be read is told", "[model_archive]") {
  CHECK(std::string(CheckModelArchive(-1).status().message()) == "the model file cannot be read");
  const int folder = open("/", O_RDONLY | O_DIRECTORY);
  CHECK(std::string(CheckModelArchive(folder).status().message()) == "the model file cannot be read");
  close(folder);
}

}  // namespace
}  // namespace headroom
