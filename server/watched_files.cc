#include "server/watched_files.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace headroom {
namespace {

constexpr Duration kLookEvery = std::chrono::seconds(1);

std::int64_t Nanoseconds(const timespec& time) { return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec; }

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, std::size_t most) {
  const auto failed = [&](const std::string& why) { return absl::FailedPreconditionError(absl::StrCat(path, " ", why)); };
  const auto with_reason = [&](int error) {
    return failed(absl::StrCat("cannot be read: ", std::generic_category().message(error)));
  };
  // Neither a pipe nor a device may hold up the server.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return with_reason(errno);
  std::string text(most + 1, '\0');
  std::size_t size = 0;
  ssize_t got = 0;
  while (size < text.size() && ((got = ::read(file, text.data() + size, text.size() - size)) > 0 || (got < 0 && errno == EINTR))) {
    if (got > 0) size += static_cast<std::size_t>(got);
  }
  const int error = got < 0 ? errno : 0;
  ::close(file);
  if (error != 0) return with_reason(error);
  if (size > most) return failed(absl::StrCat("is longer than ", most, " bytes"));
  text.resize(size);
  return text;
}

WatchedFiles::WatchedFiles(std::vector<std::string> paths, Clock& clock)
    : paths_(std::move(paths)), clock_(clock), seen_(Look()), next_look_(After(clock.Now(), kLookEvery)) {}

bool WatchedFiles::Changed() {
  const TimePoint now = clock_.Now();
  if (now < next_look_) return false;
  next_look_ = After(now, kLookEvery);
  std::vector<Stamp> found = Look();
  if (found == seen_) return false;
  seen_ = std::move(found);
  return true;
}

std::vector<WatchedFiles::Stamp> WatchedFiles::Look() const {
  std::vector<Stamp> stamps;
  for (const std::string& path : paths_) {
    struct stat status = {};
    Stamp& stamp = stamps.emplace_back();
    if (::stat(path.c_str(), &status) != 0) continue;
    stamp = {status.st_dev, status.st_ino, status.st_size, Nanoseconds(status.st_mtim), Nanoseconds(status.st_ctim)};
  }
  return stamps;
}

}  // namespace headroom
