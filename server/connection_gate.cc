#include "server/connection_gate.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace headroom {
namespace {

// How long to leave the port alone where not even the spare descriptor can be had.
constexpr int kNoDescriptorPauseMs = 20;
// How often to ask the kernel which connections have gone, while it is full.
constexpr Duration kSweepAtMost = std::chrono::milliseconds(10);
// Connections taken from one socket before another gets its turn.
constexpr int kAcceptedAtOnce = 64;

// 0 where the descriptor is not open.
std::uint64_t InodeOf(int descriptor) {
  struct stat status = {};
  return ::fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

int OpenSpare() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

int RaiseDescriptorLimit(int wished) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wished;
  const auto target = std::min<rlim_t>(limit.rlim_max, static_cast<rlim_t>(wished));
  if (limit.rlim_cur < target) {
    rlimit raised{target, limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  constexpr rlim_t kMost = 1 << 30;
  return static_cast<int>(std::min(limit.rlim_cur, kMost));
}

void OpenSockets::Add(int socket) {
  if (const std::uint64_t inode = InodeOf(socket); inode != 0) entries_.push_back({socket, inode});
}

void OpenSockets::Sweep() {
  std::erase_if(entries_, [](const Entry& entry) { return InodeOf(entry.descriptor) != entry.inode; });
}

ConnectionGate::ConnectionGate(Parts parts)
    : parts_(std::move(parts)), spare_(OpenSpare()), stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { Run(); }) {}

void ConnectionGate::StopAccepting() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  while (::write(stop_, &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
  for (const int socket : parts_.sockets.sockets()) ::shutdown(socket, SHUT_RDWR);
}

ConnectionGate::~ConnectionGate() {
  StopAccepting();
  ::close(stop_);
  if (spare_ >= 0) ::close(spare_);
}

std::int64_t ConnectionGate::open() const {
  MutexLock lock(mutex_);
  open_.Sweep();
  return open_.count();
}

void ConnectionGate::Run() {
  std::vector<pollfd> polled;
  for (const int socket : parts_.sockets.sockets()) polled.push_back({socket, POLLIN, 0});
  polled.push_back({stop_, POLLIN, 0});
  while (true) {
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;  // a signal
    if (polled.back().revents != 0) return;
    for (const pollfd& each : polled) {
      for (int i = 0; each.revents != 0 && i < kAcceptedAtOnce && AcceptOne(each.fd); ++i) {
      }
    }
  }
}

bool ConnectionGate::AcceptOne(int listening_socket) {
  const int connection = ::accept4(listening_socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (connection < 0) {
    if (errno == EMFILE || errno == ENFILE) RefuseBySpare(listening_socket);
    // Whatever else it is, such as a client that has gone meanwhile, is no reason to stop.
    return errno == EINTR || errno == ECONNABORTED;
  }
  if (connection >= parts_.first_reserved_descriptor || IsFull()) {
    Refuse(connection);
    return true;
  }
  {
    MutexLock lock(mutex_);
    open_.Add(connection);
  }
  const int yes = 1;  // small answers are not held back; a unix socket does not know the option
  ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  parts_.hand_over(listening_socket, connection);
  return true;
}

void ConnectionGate::RefuseBySpare(int listening_socket) {
  if (spare_ < 0) spare_ = OpenSpare();
  if (spare_ < 0) {
    pollfd stop{stop_, POLLIN, 0};
    ::poll(&stop, 1, kNoDescriptorPauseMs);
    return;
  }
  ::close(std::exchange(spare_, -1));
  const int connection = ::accept4(listening_socket, nullptr, nullptr, SOCK_CLOEXEC);
  if (connection >= 0) Refuse(connection);
  spare_ = OpenSpare();
}

bool ConnectionGate::IsFull() {
  MutexLock lock(mutex_);
  if (open_.count() < parts_.most_connections) return false;
  const TimePoint now = RealClock().Now();
  if (now < next_sweep_) return true;
  open_.Sweep();
  next_sweep_ = After(now, kSweepAtMost);
  return open_.count() >= parts_.most_connections;
}

void ConnectionGate::Refuse(int connection) {
  // Counted first: whoever sees the connection closed finds it in the count.
  refused_.fetch_add(1, std::memory_order_relaxed);
  ::close(connection);
  if (!told_.Pass(RealClock().Now())) return;
  Log(LogLevel::kWarning, "a connection was refused: too many are open",
      {{"limit", parts_.most_connections}, {"refused_so_far", refused()}});
}

}  // namespace headroom
