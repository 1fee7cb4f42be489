#include "server/connection_gate.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/sync.h"
#include "test/server/scratch_folder.h"

namespace headroom {
namespace {

ListeningSockets Listen(const Address& address) {
  auto sockets = ListeningSockets::Open(address);
  REQUIRE(sockets.ok());
  return *std::move(sockets);
}

// A client's end. Closed with its owner.
class Caller {
 public:
  explicit Caller(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  }
  ~Caller() { ::close(socket_); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Waits for what the other end says: a letter, or 0 where it closes.
  char Hear() const {
    char letter = 0;
    return ::recv(socket_, &letter, 1, 0) == 1 ? letter : '\0';
  }

 private:
  const int socket_;
};

// Takes connections over as gRPC does, and greets each.
class Taker {
 public:
  ~Taker() { CloseAll(); }
  void Take(int connection) {
    ::send(connection, "h", 1, MSG_NOSIGNAL);
    MutexLock lock(mutex_);
    taken_.push_back(connection);
  }
  void CloseAll() {
    MutexLock lock(mutex_);
    for (const int connection : taken_) ::close(connection);
    taken_.clear();
  }

 private:
  Mutex mutex_;
  std::vector<int> taken_ GUARDED_BY(mutex_);
};

ConnectionGate::Parts PartsFor(Taker& taker, std::int64_t most, int first_reserved = 1 << 30) {
  return {Listen({"127.0.0.1", 0}), most, first_reserved, [&taker](int, int connection) { taker.Take(connection); }};
}

// The local addresses, in the kernel's notation, at which a process listens on `port`.
std::multiset<std::string> ListeningAt(int port) {
  std::multiset<std::string> found;
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string number;
      std::string local;
      std::string remote;
      std::string state;
      words >> number >> local >> remote >> state;
      const std::size_t colon = local.find(':');
      if (state == "0A" && colon != std::string::npos && std::stoi(local.substr(colon + 1), nullptr, 16) == port) {
        found.insert(local.substr(0, colon));
      }
    }
  }
  return found;
}

TEST_CASE("what listens is what is configured, and nothing else", "[listening]") {
  using Addresses = std::multiset<std::string>;
  const auto only = [](const std::string& host) {
    const ListeningSockets sockets = Listen({host, 0});
    REQUIRE(sockets.port() > 0);
    return ListeningAt(sockets.port());
  };
  CHECK(only("127.0.0.1") == Addresses{"0100007F"});
  CHECK(only("127.0.0.2") == Addresses{"0200007F"});
  CHECK(only("0.0.0.0") == Addresses{"00000000"});  // IPv4 alone
  int port = 0;
  {
    const ListeningSockets sockets = Listen({"127.0.0.1", 0});
    port = sockets.port();
  }
  CHECK(ListeningAt(port).empty());
}

TEST_CASE("an address that cannot be listened on says why", "[listening]") {
  const ListeningSockets taken = Listen({"127.0.0.1", 0});
  CHECK(ListeningSockets::Open({"127.0.0.1", taken.port()}).status().message() == "Address already in use");
  CHECK(ListeningSockets::Open({"192.0.2.1", 1}).status().message() == "Cannot assign requested address");
  CHECK_FALSE(ListeningSockets::Open({"no-such-host.invalid", 1}).ok());
}

TEST_CASE("a unix socket is its user's alone, replaces one that was left behind, and goes with its owner", "[listening]") {
  const ScratchFolder folder;
  const std::string path = folder.PathOf("socket");
  const Address address{"unix:" + path, 0};
  {
    const ListeningSockets sockets = Listen(address);
    struct stat status = {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    CHECK(ListeningSockets::Open(address).status().message() == "Address already in use");
  }
  CHECK(folder.size() == 0);

  sockaddr_un left{};
  left.sun_family = AF_UNIX;
  path.copy(left.sun_path, sizeof left.sun_path - 1);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&left), sizeof left) == 0);
  ::close(socket);
  CHECK(folder.size() == 1);
  CHECK(ListeningSockets::Open(address).ok());

  folder.Write("socket", "a file that somebody needs");
  CHECK(ListeningSockets::Open(address).status().message() == "Address already in use");
  CHECK(folder.Read("socket") == "a file that somebody needs");
}

TEST_CASE("as many connections as may be are open, one beyond is closed at once, and one that has gone makes room", "[gate]") {
  Taker taker;
  ConnectionGate gate(PartsFor(taker, 3));
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < 3; ++i) {
    callers.push_back(std::make_unique<Caller>(gate.port()));
    CHECK(callers.back()->Hear() == 'h');
  }
  CHECK(gate.open() == 3);
  CHECK(Caller(gate.port()).Hear() == '\0');
  CHECK(gate.refused() == 1);
  taker.CloseAll();
  CHECK(gate.open() == 0);
  CHECK(Caller(gate.port()).Hear() == 'h');
}

TEST_CASE("sockets are counted until they are closed, whatever has their number then", "[gate]") {
  OpenSockets open;
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  open.Add(pair[0]);
  open.Add(pair[1]);
  open.Sweep();
  CHECK(open.count() == 2);
  // Another socket, and then a file, by the same number.
  int other[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, other) == 0);
  REQUIRE(::dup2(other[0], pair[0]) == pair[0]);
  open.Sweep();
  CHECK(open.count() == 1);
  REQUIRE(::dup2(STDIN_FILENO, pair[1]) == pair[1]);
  open.Sweep();
  CHECK(open.count() == 0);
  open.Add(-1);
  CHECK(open.count() == 0);
  for (const int socket : {pair[0], pair[1], other[0], other[1]}) ::close(socket);
}

TEST_CASE("the last descriptors are left to the process", "[gate]") {
  Taker taker;
  ConnectionGate gate(PartsFor(taker, 100, /*first_reserved=*/0));
  CHECK(Caller(gate.port()).Hear() == '\0');
  CHECK(gate.refused() == 1);
}

TEST_CASE("a gate without a descriptor left refuses, and accepts again once there is one", "[gate]") {
  Taker taker;
  ConnectionGate gate(PartsFor(taker, 100));
  Caller first(gate.port());  // so that the gate's thread has all that it needs
  CHECK(first.Hear() == 'h');
  Caller waiting(gate.port());
  CHECK(waiting.Hear() == 'h');
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  // Two sockets for the callers below, then none that may be had: existing ones stay.
  const int next = ::dup(STDIN_FILENO);
  ::close(next);
  const rlimit low{static_cast<rlim_t>(next) + 1, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  char heard_without = 'x';
  {
    const Caller caller(gate.port());  // takes the last one
    heard_without = caller.Hear();
  }
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(heard_without == '\0');
  CHECK(gate.refused() == 1);
  CHECK(Caller(gate.port()).Hear() == 'h');
}

}  // namespace
}  // namespace headroom
