#include "faults.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <utility>

namespace headroom::dry_cuda {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

bool ParseCount(std::string_view name, std::string_view text, std::uint64_t least, std::uint64_t& count, std::string& problem) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && end == text.data() + text.size() && count >= least) return true;
  problem = std::string(name) + " takes a whole number from " + std::to_string(least) + ", not '" + std::string(text) + "'";
  return false;
}

// Reads one NAME=VALUE.
bool ParseFault(std::string_view name, std::string_view value, FaultPlan& plan, std::vector<Card>& cards, std::string& problem) {
  std::uint64_t count = 0;
  if (name == "malloc_fails_at") return ParseCount(name, value, 1, plan.malloc_fails_at, problem);
  if (name == "malloc_fails_every") return ParseCount(name, value, 1, plan.malloc_fails_every, problem);
  if (name == "malloc_failures") return ParseCount(name, value, 1, plan.malloc_failures, problem);
  if (name == "memory_query_fails_after") {
    if (!ParseCount(name, value, 0, count, problem)) return false;
    plan.memory_query_fails_after = count;
    return true;
  }
  if (name == "lost_after_launches") {
    if (!ParseCount(name, value, 0, count, problem)) return false;
    plan.lost_after_launches = count;
    return true;
  }
  if (name == "synchronize_takes_ms") {
    if (!ParseCount(name, value, 0, count, problem)) return false;
    plan.synchronize_takes = std::chrono::milliseconds(count);
    return true;
  }
  if (name == "held_by_others") {
    if (ParseHeldByOthers(value, cards, problem)) return true;
    problem = "held_by_others: " + problem;
    return false;
  }
  problem = "there is no fault '" + std::string(name) + "'";
  return false;
}

}  // namespace

std::optional<FaultPlan> ParseFaults(std::string_view text, std::vector<Card> cards, std::string& problem) {
  FaultPlan plan;
  while (true) {
    const std::size_t begin = text.find_first_not_of(kBlank);
    if (begin == std::string_view::npos) break;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(kBlank));
    text.remove_prefix(word.size());
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      problem = "'" + std::string(word) + "' is not of the form NAME=VALUE";
      return std::nullopt;
    }
    if (!ParseFault(word.substr(0, equals), word.substr(equals + 1), plan, cards, problem)) return std::nullopt;
  }
  for (const Card& card : cards) plan.held_by_others.push_back(card.held_by_others);
  return plan;
}

std::optional<std::string> WatchedFile::ReadIfChanged() {
  struct stat status = {};
  if (stat(path_.c_str(), &status) != 0) return std::nullopt;
  const auto version_of = [](const struct stat& s) { return Version{s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec}; };
  if (version_of(status) == seen_) return std::nullopt;
  const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::string content;
  std::array<char, 4096> block{};
  bool whole = fstat(file, &status) == 0;
  while (whole) {
    const ssize_t got = read(file, block.data(), block.size());
    whole = got >= 0;
    if (got <= 0) break;
    content.append(block.data(), static_cast<std::size_t>(got));
  }
  close(file);
  if (!whole) return std::nullopt;
  seen_ = version_of(status);
  return content;
}

void Faults::Follow(const FaultPlan& plan) {
  const std::lock_guard<std::mutex> lock(mu_);
  plan_ = plan;
  mallocs_ = memory_queries_ = launches_ = 0;
}

bool Faults::MallocFails() {
  const std::lock_guard<std::mutex> lock(mu_);
  ++mallocs_;
  const std::uint64_t at = plan_.malloc_fails_at;
  if (at > 0 && mallocs_ >= at && mallocs_ - at < plan_.malloc_failures) return true;
  const std::uint64_t every = plan_.malloc_fails_every;
  return every > 0 && mallocs_ >= every && mallocs_ % every < plan_.malloc_failures;
}

bool Faults::MemoryQueryFails() {
  const std::lock_guard<std::mutex> lock(mu_);
  return plan_.memory_query_fails_after.has_value() && memory_queries_++ >= *plan_.memory_query_fails_after;
}

void Faults::Launch(int device) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (!plan_.lost_after_launches.has_value() || launches_++ < *plan_.lost_after_launches) return;
  if (lost_[static_cast<std::size_t>(device)].exchange(true)) return;
  std::fprintf(stderr, "headroom dry CUDA: card %d is lost, as it was told to be\n", device);
}

std::chrono::milliseconds Faults::synchronize_takes() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return plan_.synchronize_takes;
}

}  // namespace headroom::dry_cuda
