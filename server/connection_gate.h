// Accepts connections for gRPC, as many as may be open. gRPC 1.51 has no limit on connections, and its own listener never accepts
// again once the process has run out of file descriptors (CVE-2023-4785).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/rate_limit.h"
#include "base/sync.h"
#include "server/listening_socket.h"

namespace headroom {

// Raises the process' soft limit on file descriptors towards `wished`, as far as it may, and returns what it is then.
int RaiseDescriptorLimit(int wished);

// Which of the sockets that were handed to others are still open. They are closed without a word, so the kernel is asked: a socket
// is counted as long as its descriptor is that very socket. Not thread-safe.
class OpenSockets {
 public:
  void Add(int socket);
  // Those that are open, or have been closed since Sweep.
  std::int64_t count() const { return static_cast<std::int64_t>(entries_.size()); }
  // Forgets those that have been closed: a system call each.
  void Sweep();

 private:
  struct Entry {
    int descriptor;
    std::uint64_t inode;
  };
  std::vector<Entry> entries_;
};

// Thread-safe.
class ConnectionGate {
 public:
  struct Parts {
    ListeningSockets sockets;
    std::int64_t most_connections = 0;
    // A connection whose descriptor is this or higher is closed, so that the process keeps some for its files and other ports.
    int first_reserved_descriptor = 0;
    // Takes over a connection; on the gate's thread.
    std::function<void(int listening_socket, int connection)> hand_over;
  };
  // Accepts from now on.
  explicit ConnectionGate(Parts parts);
  // Stops accepting, and listening.
  ~ConnectionGate();
  ConnectionGate(const ConnectionGate&) = delete;
  ConnectionGate& operator=(const ConnectionGate&) = delete;

  // Nobody is let in from now on, and who calls is told so by the kernel. Not to be called twice at once.
  void StopAccepting();

  int port() const { return parts_.sockets.port(); }
  // Connections that are open.
  std::int64_t open() const EXCLUDES(mutex_);
  // Connections that were closed at once, since too many were open or no descriptor was left.
  std::int64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  void Run();
  // False where nothing waits there any more.
  bool AcceptOne(int listening_socket);
  // With no descriptor left: lets the next one in by the spare, and closes it, lest it waits for ever.
  void RefuseBySpare(int listening_socket);
  bool IsFull() EXCLUDES(mutex_);
  void Refuse(int connection);

  Parts parts_;
  std::atomic<std::int64_t> refused_ = 0;
  RateLimit told_{std::chrono::seconds(10)};
  int spare_ = -1;          // of the gate's thread
  TimePoint next_sweep_{};  // of the gate's thread
  int stop_ = -1;
  mutable Mutex mutex_;
  mutable OpenSockets open_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace headroom
