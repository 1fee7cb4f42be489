#include "server/listening_socket.h"

#include <absl/strings/str_cat.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "base/status_macros.h"

namespace headroom {
namespace {

// Connections that may wait to be accepted: a burst of clients that come back after a restart.
constexpr int kBacklog = 1024;
constexpr int kSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

absl::Status CannotListen(int error) { return absl::UnavailableError(std::generic_category().message(error)); }

void SetOption(int socket, int level, int option, int value) { ::setsockopt(socket, level, option, &value, sizeof value); }

// A socket that listens at `address`, or the error number, negated.
int ListenAt(const sockaddr* address, socklen_t size) {
  const int socket = ::socket(address->sa_family, kSocketFlags, 0);
  if (socket < 0) return -errno;
  if (address->sa_family != AF_UNIX) SetOption(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  // Addresses in use by the other family must not be taken for this one's; the wildcard is both by Linux' custom.
  if (address->sa_family == AF_INET6) {
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(address);
    SetOption(socket, IPPROTO_IPV6, IPV6_V6ONLY, std::memcmp(&v6->sin6_addr, &in6addr_any, sizeof in6addr_any) == 0 ? 0 : 1);
  }
  if (::bind(socket, address, size) == 0 && ::listen(socket, kBacklog) == 0) return socket;
  const int error = errno;
  ::close(socket);
  return -error;
}

int PortOf(int socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  const bool v6 = bound.ss_family == AF_INET6;
  return ntohs(v6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

void SetPort(sockaddr* address, int port) {
  const auto in_network_order = htons(static_cast<std::uint16_t>(port));
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = in_network_order;
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = in_network_order;
  }
}

// Whether a socket's file is what a process that is gone has left: nobody answers there.
bool IsLeftBehind(const sockaddr_un& address) {
  struct stat entry = {};
  if (::lstat(address.sun_path, &entry) != 0 || !S_ISSOCK(entry.st_mode)) return false;
  const int caller = ::socket(AF_UNIX, kSocketFlags, 0);
  if (caller < 0) return false;
  const bool refused = ::connect(caller, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == ECONNREFUSED;
  ::close(caller);
  return refused;
}

}  // namespace

ListeningSockets::ListeningSockets(ListeningSockets&& other) noexcept
    : sockets_(std::exchange(other.sockets_, {})), port_(other.port_), path_(std::exchange(other.path_, {})) {}

ListeningSockets::~ListeningSockets() {
  // Before the socket is closed: afterwards the path may be another process' already.
  if (!path_.empty()) ::unlink(path_.c_str());
  for (const int socket : sockets_) ::close(socket);
}

absl::StatusOr<ListeningSockets> ListeningSockets::Open(const Address& address) {
  ListeningSockets opened;
  RETURN_IF_ERROR(IsUnix(address) ? opened.OpenUnix(address.host.substr(address.host.find('/'))) : opened.OpenInternet(address));
  return opened;
}

absl::Status ListeningSockets::OpenUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (IsLeftBehind(address)) ::unlink(address.sun_path);
  // The file must never be there with other rights, not for a moment. Nothing else makes files while the server starts to listen.
  const mode_t before = ::umask(0177);
  const int socket = ListenAt(reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::umask(before);
  if (socket < 0) return CannotListen(-socket);
  sockets_.push_back(socket);
  path_ = path;
  return absl::OkStatus();
}

absl::Status ListeningSockets::OpenInternet(const Address& address) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE;
  addrinfo* resolved = nullptr;
  if (const int error = ::getaddrinfo(address.host.c_str(), nullptr, &wanted, &resolved); error != 0) {
    return absl::UnavailableError(::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(resolved, &::freeaddrinfo);
  port_ = address.port;
  int last_error = EADDRNOTAVAIL;
  for (const addrinfo* each = resolved; each != nullptr; each = each->ai_next) {
    SetPort(each->ai_addr, port_);
    const int socket = ListenAt(each->ai_addr, each->ai_addrlen);
    if (socket >= 0) {
      sockets_.push_back(socket);
      port_ = PortOf(socket);
      continue;
    }
    last_error = -socket;
    // A name may have addresses of a family that this machine does not have; anything else is a fault.
    if (last_error != EAFNOSUPPORT && last_error != EADDRNOTAVAIL) return CannotListen(last_error);
  }
  return sockets_.empty() ? CannotListen(last_error) : absl::OkStatus();
}

}  // namespace headroom
