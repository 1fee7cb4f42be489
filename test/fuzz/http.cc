#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/http_server.h"
#include "test/fuzz/fuzz_targets.h"

namespace headroom {
namespace {

constexpr char kPage[] = "a_metric 1\n";

// libFuzzer follows our code; the HTTP library is not built with it. What the server answers stands in for the ways through the
// library: each answer is told as a counter of its own.
#ifdef HEADROOM_LIBFUZZER
__attribute__((section("__libfuzzer_extra_counters"))) std::uint8_t answers[1024];
void TellAnswer(const std::string& reply) {
  std::size_t kind = reply.size() % 7;
  for (const char letter : reply.substr(0, 16)) kind = kind * 31 + static_cast<unsigned char>(letter);
  answers[kind % sizeof answers] = 1;
}
#else
void TellAnswer(const std::string&) {}
#endif

int Connect(int port) {
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  // From many addresses in turn: connections that are over hold their ports for a minute, and thousands a second would use up one
  // address' ports.
  static std::uint32_t turn = 0;
  sockaddr_in from{};
  from.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + turn++ % 4096);
  const int later = 1;
  ::setsockopt(connection, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &later, sizeof later);
  Require(::bind(connection, reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0, "loopback has many addresses");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // The fuzzer's own timer interrupts; what was begun goes on.
  int connected = 0;
  do {
    connected = ::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (connected != 0 && (errno == EINTR || errno == EALREADY));
  Require(connected == 0 || errno == EISCONN, "the port takes connections");
  return connection;
}

// All that comes back. The client sends no more, so that the server need not wait for the rest of what is cut off.
std::string Ask(int port, std::string_view bytes) {
  const int connection = Connect(port);
  while (!bytes.empty()) {
    const ssize_t sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) break;  // it was refused already
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  ::shutdown(connection, SHUT_WR);
  std::string reply;
  std::array<char, 4096> piece{};
  while (true) {
    const ssize_t got = ::recv(connection, piece.data(), piece.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    reply.append(piece.data(), static_cast<std::size_t>(got));
  }
  ::close(connection);
  return reply;
}

const HttpServer& Server() {
  static const std::unique_ptr<HttpServer> server = [] {
    auto started = HttpServer::Start(
        "127.0.0.1", 0, {.metrics = [] { return std::string(kPage); }, .not_ready = [] { return std::optional<std::string>(); }});
    Require(started.ok(), "the server starts");
    return *std::move(started);
  }();
  return *server;
}

// Without the word to go on that the library says first to a client that expects it.
std::string_view FinalAnswer(std::string_view reply) {
  constexpr std::string_view kGoOn = "HTTP/1.1 100 ";
  while (reply.starts_with(kGoOn)) {
    const std::size_t end = reply.find("\r\n\r\n");
    Require(end != std::string_view::npos, "an answer has a head");
    reply.remove_prefix(end + 4);
  }
  return reply;
}

}  // namespace

void FuzzHttp(std::string_view bytes) {
  static int calls = 0;
  const int port = Server().port();
  const std::string replies = Ask(port, bytes);
  TellAnswer(replies);
  const std::string_view reply = FinalAnswer(replies);
  if (!reply.empty()) {
    Require(reply.starts_with("HTTP/1.1 ") && reply.size() > 12 && reply[9] >= '2' && reply[9] <= '5', "an answer has a status");
    Require(reply.find("\r\n\r\n") != std::string_view::npos, "an answer has a head");
    const bool page = reply.find(kPage) != std::string_view::npos;
    Require(!page || reply.starts_with("HTTP/1.1 20"), "the page comes with no other status than success");
    Require(!reply.starts_with("HTTP/1.1 500"), "no request is an internal error");
  }
  if (++calls % 64 == 1) {
    Require(Ask(port, "GET /livez HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"), "a probe is answered after whatever came");
  }
}

}  // namespace headroom
