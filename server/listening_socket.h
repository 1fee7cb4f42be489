// Sockets that listen on the address that is configured and on no other. gRPC's own would listen on [::], IPv6 included, where
// 0.0.0.0 is asked for.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "server/options.h"

namespace headroom {

// Open sockets, closed with their owner; a unix socket's file goes with them. Movable.
class ListeningSockets {
 public:
  // All addresses of a host name get the same port; those of a family that this machine lacks are left out. "[::]" takes IPv4 too,
  // as is usual on Linux, and "0.0.0.0" takes IPv4 alone. Only this user may call a unix socket; one that a process which is gone
  // has left behind is replaced. UNAVAILABLE saying why, without the address.
  static absl::StatusOr<ListeningSockets> Open(const Address& address);

  ListeningSockets(ListeningSockets&& other) noexcept;
  ListeningSockets& operator=(ListeningSockets&&) = delete;
  ~ListeningSockets();

  // They do not block, and are not inherited by other programs.
  const std::vector<int>& sockets() const { return sockets_; }
  int port() const { return port_; }  // 0 for a unix socket

 private:
  ListeningSockets() = default;
  absl::Status OpenUnix(const std::string& path);
  absl::Status OpenInternet(const Address& address);

  std::vector<int> sockets_;
  int port_ = 0;
  std::string path_;  // of a unix socket
};

}  // namespace headroom
