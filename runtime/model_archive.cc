#include "runtime/model_archive.h"

#include <absl/strings/str_cat.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <string_view>
#include <utility>

#include "base/status_macros.h"

// The layout is that of PKWARE's APPNOTE.TXT, section 4.3; little-endian throughout.

namespace headroom {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kDataDescriptor = 0x08074b50;
constexpr std::uint32_t kDirectoryEntry = 0x02014b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::uint32_t kEnd64Locator = 0x07064b50;

constexpr std::size_t kLocalHeaderBytes = 30;
constexpr std::size_t kDirectoryEntryBytes = 46;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kEnd64LocatorBytes = 20;

constexpr std::uint16_t kHasDescriptor = 1U << 3U;
constexpr std::uint16_t kUtf8Names = 1U << 11U;
constexpr std::uint16_t kStored = 0;
constexpr std::uint16_t kDeflated = 8;
constexpr std::uint16_t kZip64Field = 1;
// Two characters each: libtorch's, and Info-ZIP's times and owners.
constexpr std::uint16_t FieldId(char first, char second) { return static_cast<std::uint16_t>(first | second << 8); }
constexpr std::uint16_t kAlignment = FieldId('F', 'B');
constexpr std::array kHarmless = {kAlignment, kZip64Field, FieldId('U', 'T'), FieldId('u', 'x'), FieldId('U', 'x')};
constexpr std::uint32_t kIn64 = 0xffffffff;  // the figure stands in the record's zip64 field

constexpr std::uint64_t kLargestDirectory = 64U << 20U;

absl::Status Damaged(const std::string& how) {
  return absl::InvalidArgumentError(
      absl::StrCat("the model file is damaged or not a TorchScript module: ", how, "; copy it again, or export it anew"));
}

// Eight tables, so that eight bytes are taken at a step: a checksum over gigabytes of weights is to cost no more than reading them.
using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;
constexpr CrcTables MakeCrcTables() {
  CrcTables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0xedb88320U : 0U);
    tables[0][byte] = crc;
  }
  for (std::size_t table = 1; table < tables.size(); ++table) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t shorter = tables[table - 1][byte];
      tables[table][byte] = (shorter >> 8U) ^ tables[0][shorter & 0xffU];
    }
  }
  return tables;
}
constexpr CrcTables kCrcTables = MakeCrcTables();

// Fields are taken off the front of a piece of the file. What is not there reads as 0 and is noted.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}
  explicit Fields(const std::vector<char>& bytes) : bytes_(bytes.data(), bytes.size()) {}

  std::uint64_t Take(std::size_t width) {
    std::uint64_t value = 0;
    const std::string_view piece = TakeText(width);
    for (std::size_t i = 0; i < piece.size(); ++i) value |= std::uint64_t{static_cast<unsigned char>(piece[i])} << (8 * i);
    return value;
  }
  std::uint16_t Take16() { return static_cast<std::uint16_t>(Take(2)); }
  std::uint32_t Take32() { return static_cast<std::uint32_t>(Take(4)); }
  std::uint64_t Take64() { return Take(8); }

  std::string_view TakeText(std::size_t size) {
    if (size > bytes_.size()) {
      complete_ = false;
      bytes_ = {};
      return {};
    }
    const std::string_view text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return text;
  }
  bool complete() const { return complete_; }
  bool empty() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool complete_ = true;
};

class File {
 public:
  static absl::StatusOr<File> Of(int descriptor) {
    struct stat status = {};
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
      return absl::InvalidArgumentError("the model file cannot be read");
    }
    return File(descriptor, static_cast<std::uint64_t>(status.st_size));
  }
  std::uint64_t size() const { return size_; }

  // Exactly `size` bytes from `at` on. A file that is shorter is damaged.
  absl::StatusOr<std::vector<char>> Read(std::uint64_t at, std::uint64_t size) const {
    if (at > size_ || size > size_ - at) return Damaged("it ends too soon");
    std::vector<char> bytes(size);
    std::uint64_t done = 0;
    while (done < size) {
      const ssize_t got = pread(descriptor_, bytes.data() + done, size - done, static_cast<off_t>(at + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return absl::InvalidArgumentError("the model file cannot be read");
      if (got == 0) return Damaged("it ends too soon");
      done += static_cast<std::uint64_t>(got);
    }
    return bytes;
  }

  absl::StatusOr<std::uint32_t> Crc(std::uint64_t at, std::uint64_t size) const {
    constexpr std::uint64_t kBlock = 1U << 20U;
    std::uint32_t crc = 0;
    for (std::uint64_t done = 0; done < size; done += kBlock) {
      ASSIGN_OR_RETURN(const std::vector<char> block, Read(at + done, std::min(kBlock, size - done)));
      crc = Crc32({reinterpret_cast<const unsigned char*>(block.data()), block.size()}, crc);
    }
    return crc;
  }

 private:
  File(int descriptor, std::uint64_t size) : descriptor_(descriptor), size_(size) {}
  int descriptor_;
  std::uint64_t size_;
};

// What a record's header and its directory entry both say.
struct Record {
  std::string name;
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint32_t time_and_date = 0;
  std::uint32_t crc = 0;
  std::uint64_t packed = 0;
  std::uint64_t unpacked = 0;
  std::uint64_t at = 0;  // of its header in the file
};

absl::Status DamagedRecord(const Record& record, const char* how) {
  // A name is of the file's making.
  const bool plain = record.name.size() <= 200 &&
                     std::all_of(record.name.begin(), record.name.end(), [](char c) { return c > ' ' && c <= '~' && c != '\''; });
  return Damaged(plain ? absl::StrCat("its record '", record.name, "' ", how) : absl::StrCat("a record ", how));
}

// Replaces figures that are too large for their fields by those of the zip64 field of `extra`.
absl::Status TakeZip64(std::string_view extra, const std::vector<std::uint64_t*>& wanted) {
  if (wanted.empty()) return absl::OkStatus();
  Fields fields(extra);
  while (!fields.empty() && fields.complete()) {
    const std::uint16_t id = fields.Take16();
    Fields content(fields.TakeText(fields.Take16()));
    if (id != kZip64Field) continue;
    for (std::uint64_t* figure : wanted) *figure = content.Take64();
    if (!content.complete()) break;
    return absl::OkStatus();
  }
  return Damaged("a size is missing");
}

struct Directory {
  std::uint64_t at = 0;
  std::uint64_t bytes = 0;
  std::uint64_t entries = 0;
};

// The end of the archive: where its directory is. No comment may follow, which no module has, so that it is found at one place.
absl::StatusOr<Directory> FindDirectory(const File& file) {
  if (file.size() < kEndBytes) return Damaged("it is too short to be one");
  const std::uint64_t end_at = file.size() - kEndBytes;
  ASSIGN_OR_RETURN(const std::vector<char> end_bytes, file.Read(end_at, kEndBytes));
  Fields end(end_bytes);
  if (end.Take32() != kEnd) return Damaged("its end is missing, as where a copy was broken off");
  const std::uint32_t disks = end.Take32();
  const std::uint16_t entries_here = end.Take16();
  Directory directory;
  directory.entries = end.Take16();
  directory.bytes = end.Take32();
  directory.at = end.Take32();
  if (disks != 0 || entries_here != directory.entries || end.Take16() != 0) return Damaged("its end is not that of a module");

  std::uint64_t directory_end = end_at;
  const bool in_64 = directory.entries == 0xffff || directory.bytes == kIn64 || directory.at == kIn64;
  // Written whether it is needed or not.
  if (end_at >= kEnd64LocatorBytes + kEnd64Bytes) {
    ASSIGN_OR_RETURN(const std::vector<char> locator_bytes, file.Read(end_at - kEnd64LocatorBytes, kEnd64LocatorBytes));
    Fields locator(locator_bytes);
    if (locator.Take32() == kEnd64Locator) {
      const std::uint64_t end64_at = end_at - kEnd64LocatorBytes - kEnd64Bytes;
      if (locator.Take32() != 0 || locator.Take64() != end64_at || locator.Take32() != 1)
        return Damaged("its end is not that of a module");
      ASSIGN_OR_RETURN(const std::vector<char> end64_bytes, file.Read(end64_at, kEnd64Bytes));
      Fields end64(end64_bytes);
      Directory larger;
      const bool is_end = end64.Take32() == kEnd64 && end64.Take64() == kEnd64Bytes - 12;
      end64.Take32();  // versions
      const std::uint64_t disks64 = end64.Take64();
      const std::uint64_t entries64_here = end64.Take64();
      larger.entries = end64.Take64();
      larger.bytes = end64.Take64();
      larger.at = end64.Take64();
      const auto agrees = [](std::uint64_t small, std::uint64_t limit, std::uint64_t large) {
        return small == large || small == limit;
      };
      if (!is_end || disks64 != 0 || entries64_here != larger.entries || !agrees(directory.entries, 0xffff, larger.entries) ||
          !agrees(directory.bytes, kIn64, larger.bytes) || !agrees(directory.at, kIn64, larger.at)) {
        return Damaged("its end contradicts itself");
      }
      directory = larger;
      directory_end = end64_at;
    } else if (in_64) {
      return Damaged("its end is incomplete");
    }
  } else if (in_64) {
    return Damaged("its end is incomplete");
  }
  if (directory.at > directory_end || directory.bytes != directory_end - directory.at || directory.bytes > kLargestDirectory ||
      directory.entries > directory.bytes / kDirectoryEntryBytes) {
    return Damaged("its directory is not where its end says");
  }
  return directory;
}

absl::StatusOr<Record> TakeDirectoryEntry(Fields& directory) {
  Record record;
  const bool is_entry = directory.Take32() == kDirectoryEntry;
  directory.Take32();  // versions
  record.flags = directory.Take16();
  record.method = directory.Take16();
  record.time_and_date = directory.Take32();
  record.crc = directory.Take32();
  record.packed = directory.Take32();
  record.unpacked = directory.Take32();
  const std::uint16_t name_size = directory.Take16();
  const std::uint16_t extra_size = directory.Take16();
  const std::uint16_t comment_size = directory.Take16();
  const std::uint16_t disk = directory.Take16();
  directory.Take16();  // internal attributes
  directory.Take32();  // external ones
  record.at = directory.Take32();
  record.name = std::string(directory.TakeText(name_size));
  const std::string_view extra = directory.TakeText(extra_size);
  if (!is_entry || !directory.complete() || disk != 0 || comment_size != 0) return Damaged("its directory is not that of a module");
  std::vector<std::uint64_t*> in_64;
  for (std::uint64_t* figure : {&record.unpacked, &record.packed, &record.at}) {
    if (*figure == kIn64) in_64.push_back(figure);
  }
  RETURN_IF_ERROR(TakeZip64(extra, in_64));
  return record;
}

absl::StatusOr<std::vector<Record>> ReadDirectory(const File& file, const Directory& where) {
  ASSIGN_OR_RETURN(const std::vector<char> bytes, file.Read(where.at, where.bytes));
  Fields directory(bytes);
  std::vector<Record> records;
  std::set<std::string> names;
  while (!directory.empty()) {
    ASSIGN_OR_RETURN(Record record, TakeDirectoryEntry(directory));
    if (record.name.empty() || !names.insert(record.name).second) return DamagedRecord(record, "is there twice");
    records.push_back(std::move(record));
  }
  if (records.size() != where.entries) return Damaged("its directory is not complete");
  std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) { return a.at < b.at; });
  return records;
}

// libtorch fills a record's header up with 'Z', so that its data is aligned; archives that other programs packed tell times and
// owners there.
bool IsHarmless(std::string_view extra) {
  Fields fields(extra);
  while (!fields.empty()) {
    const std::uint16_t id = fields.Take16();
    const std::string_view content = fields.TakeText(fields.Take16());
    if (!fields.complete()) return false;
    if (id == kAlignment && content.find_first_not_of('Z') != std::string_view::npos) return false;
    if (std::find(kHarmless.begin(), kHarmless.end(), id) == kHarmless.end()) return false;
  }
  return true;
}

// Checks a record's header against its directory entry; returns where its data begins.
absl::StatusOr<std::uint64_t> CheckHeader(const File& file, const Record& record) {
  ASSIGN_OR_RETURN(const std::vector<char> bytes, file.Read(record.at, kLocalHeaderBytes));
  Fields header(bytes);
  const bool is_header = header.Take32() == kLocalHeader;
  header.Take16();  // version
  const std::uint16_t flags = header.Take16();
  const std::uint16_t method = header.Take16();
  const std::uint32_t time_and_date = header.Take32();
  const std::uint32_t crc = header.Take32();
  const std::uint32_t packed = header.Take32();
  const std::uint32_t unpacked = header.Take32();
  const std::uint16_t name_size = header.Take16();
  const std::uint16_t extra_size = header.Take16();
  ASSIGN_OR_RETURN(const std::vector<char> rest_bytes,
                   file.Read(record.at + kLocalHeaderBytes, std::uint64_t{name_size} + extra_size));
  const std::string_view rest(rest_bytes.data(), rest_bytes.size());
  // With a descriptor behind the data, these may be left open here.
  const auto agrees = [&](std::uint64_t here, std::uint64_t there) {
    return here == there || here == kIn64 || ((record.flags & kHasDescriptor) != 0 && here == 0);
  };
  if (!is_header || flags != record.flags || method != record.method || time_and_date != record.time_and_date ||
      !agrees(crc, record.crc) || !agrees(packed, record.packed) || !agrees(unpacked, record.unpacked) ||
      rest.substr(0, name_size) != record.name || !IsHarmless(rest.substr(name_size))) {
    return DamagedRecord(record, "is not as the directory says");
  }
  return record.at + kLocalHeaderBytes + rest.size();
}

// Checks the descriptor behind a record's data; returns where the record ends.
absl::StatusOr<std::uint64_t> CheckDescriptor(const File& file, const Record& record, std::uint64_t at) {
  if ((record.flags & kHasDescriptor) == 0) return at;
  // Sizes are of 4 bytes, or of 8 in archives of that kind; only one of the two can be right.
  for (const std::size_t width : {std::size_t{4}, std::size_t{8}}) {
    const std::size_t bytes = 8 + 2 * width;
    const absl::StatusOr<std::vector<char>> read = file.Read(at, bytes);
    if (!read.ok()) break;
    Fields descriptor(*read);
    const bool fits = descriptor.Take32() == kDataDescriptor && descriptor.Take32() == record.crc &&
                      descriptor.Take(width) == record.packed && descriptor.Take(width) == record.unpacked;
    if (fits) return at + bytes;
  }
  return DamagedRecord(record, "is not as the directory says");
}

}  // namespace

std::uint32_t Crc32(std::span<const unsigned char> data, std::uint32_t before) {
  std::uint32_t crc = ~before;
  std::size_t i = 0;
  for (; i + 8 <= data.size(); i += 8) {
    const auto word = [&](std::size_t from) {
      return std::uint32_t{data[from]} | std::uint32_t{data[from + 1]} << 8U | std::uint32_t{data[from + 2]} << 16U |
             std::uint32_t{data[from + 3]} << 24U;
    };
    const std::uint32_t low = crc ^ word(i);
    const std::uint32_t high = word(i + 4);
    crc = kCrcTables[7][low & 0xffU] ^ kCrcTables[6][(low >> 8U) & 0xffU] ^ kCrcTables[5][(low >> 16U) & 0xffU] ^
          kCrcTables[4][low >> 24U] ^ kCrcTables[3][high & 0xffU] ^ kCrcTables[2][(high >> 8U) & 0xffU] ^
          kCrcTables[1][(high >> 16U) & 0xffU] ^ kCrcTables[0][high >> 24U];
  }
  for (; i < data.size(); ++i) crc = (crc >> 8U) ^ kCrcTables[0][(crc ^ data[i]) & 0xffU];
  return ~crc;
}

absl::StatusOr<std::vector<PackedRecord>> CheckModelArchive(int descriptor) {
  ASSIGN_OR_RETURN(const File file, File::Of(descriptor));
  if (file.size() == 0) return absl::InvalidArgumentError("the model file is empty");
  ASSIGN_OR_RETURN(const std::vector<char> magic, file.Read(0, std::min<std::uint64_t>(2, file.size())));
  if (std::string_view(magic.data(), magic.size()) != "PK")
    return absl::InvalidArgumentError("the model file is not a TorchScript module (it is no zip archive)");
  ASSIGN_OR_RETURN(const Directory directory, FindDirectory(file));
  ASSIGN_OR_RETURN(const std::vector<Record> records, ReadDirectory(file, directory));
  std::vector<PackedRecord> packed;
  std::uint64_t at = 0;
  for (const Record& record : records) {
    if (record.at != at) return DamagedRecord(record, "is not where the one before it ends");
    if ((record.flags & ~(kHasDescriptor | kUtf8Names)) != 0) return DamagedRecord(record, "is of a kind that no module has");
    ASSIGN_OR_RETURN(const std::uint64_t data, CheckHeader(file, record));
    if (record.packed > directory.at || data > directory.at - record.packed)
      return DamagedRecord(record, "is longer than the file");
    ASSIGN_OR_RETURN(at, CheckDescriptor(file, record, data + record.packed));
    if (record.method == kDeflated) {
      if (record.unpacked > static_cast<std::uint64_t>(kLargestPackedRecord.count)) {
        return DamagedRecord(record, "unpacks to more than any module's code");
      }
      packed.push_back({record.name, {static_cast<std::int64_t>(record.unpacked)}, record.crc});
      continue;
    }
    if (record.method != kStored || record.packed != record.unpacked)
      return DamagedRecord(record, "is of a kind that no module has");
    ASSIGN_OR_RETURN(const std::uint32_t crc, file.Crc(data, record.unpacked));
    if (crc != record.crc) return DamagedRecord(record, "does not have its checksum");
  }
  if (at != directory.at) return Damaged("something lies between its records and its directory");
  return packed;
}

}  // namespace headroom
