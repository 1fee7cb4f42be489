#include "server/http_server.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.h"

namespace headroom {
namespace {

// A client's end of a connection to 127.0.0.1, or to ::1.
class Connection {
 public:
  explicit Connection(int port, bool ipv6 = false) : socket_(::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(port));
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = v4.sin_port;
    v6.sin6_addr = in6addr_loopback;
    const auto* address = ipv6 ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
    REQUIRE(::connect(socket_, address, ipv6 ? sizeof v6 : sizeof v4) == 0);
  }
  ~Connection() { ::close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Send(const std::string& text) const { ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL); }
  // No more is sent.
  void Finish() const { ::shutdown(socket_, SHUT_WR); }
  // All that comes until the server closes.
  std::string Receive() const {
    std::string text;
    std::array<char, 4096> piece{};
    for (ssize_t got = 0; (got = ::recv(socket_, piece.data(), piece.size(), 0)) > 0;) {
      text.append(piece.data(), static_cast<std::size_t>(got));
    }
    return text;
  }

 private:
  const int socket_;
};

std::string Ask(int port, const std::string& request) {
  Connection connection(port);
  connection.Send(request);
  return connection.Receive();
}

std::string Get(int port, const std::string& path) {
  return Ask(port, absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: test\r\n\r\n"));
}

std::unique_ptr<HttpServer> StartServer(const HttpHandlers& handlers = {[] { return std::string("a_metric 1\n"); },
                                                                        [] { return std::optional<std::string>(); }},
                                        std::size_t most_connections = 256) {
  auto server = HttpServer::Start("127.0.0.1", 0, handlers, most_connections);
  REQUIRE(server.ok());
  return *std::move(server);
}

TEST_CASE("the HTTP port serves the metrics page and the probes", "[http]") {
  const auto server = StartServer();
  REQUIRE(server->port() > 0);

  const std::string metrics = Get(server->port(), "/metrics");
  CHECK(absl::StartsWith(metrics, "HTTP/1.1 200"));
  CHECK(absl::StrContains(metrics, "Content-Type: text/plain; version=0.0.4"));
  CHECK(absl::EndsWith(metrics, "\r\n\r\na_metric 1\n"));

  CHECK(absl::StartsWith(Get(server->port(), "/livez"), "HTTP/1.1 200"));
  CHECK(absl::EndsWith(Get(server->port(), "/readyz"), "\r\n\r\nready\n"));
  CHECK(absl::StartsWith(Get(server->port(), "/metrics?name=value"), "HTTP/1.1 200"));
}

TEST_CASE("readiness is asked for each time and tells the reason", "[http]") {
  std::atomic<bool> ready = false;
  const auto server = StartServer(
      {[] { return std::string(); }, [&] { return ready ? std::nullopt : std::optional<std::string>("loading 2 models"); }});
  const std::string refused = Get(server->port(), "/readyz");
  CHECK(absl::StartsWith(refused, "HTTP/1.1 503"));
  CHECK(absl::EndsWith(refused, "\r\n\r\nloading 2 models\n"));
  ready = true;
  CHECK(absl::StartsWith(Get(server->port(), "/readyz"), "HTTP/1.1 200"));
}

TEST_CASE("the port tells ladders and lengths", "[http]") {
  HttpHandlers handlers{[] { return std::string(); }, [] { return std::optional<std::string>(); }};
  handlers.ladders = [] { return std::string("{\"models\": []}\n"); };
  handlers.lengths = [](const std::string& model) {
    return model == "P_1" ? std::optional<std::string>("length,count\n") : std::nullopt;
  };
  const auto server = StartServer(handlers);
  const std::string ladders = Get(server->port(), "/ladders");
  CHECK(absl::StartsWith(ladders, "HTTP/1.1 200"));
  CHECK(absl::StrContains(ladders, "Content-Type: application/json"));
  CHECK(absl::EndsWith(ladders, "\r\n\r\n{\"models\": []}\n"));
  const std::string lengths = Get(server->port(), "/lengths/P_1");
  CHECK(absl::StartsWith(lengths, "HTTP/1.1 200"));
  CHECK(absl::StrContains(lengths, "Content-Type: text/csv"));
  CHECK(absl::EndsWith(lengths, "\r\n\r\nlength,count\n"));
  for (const char* const path : {"/lengths/Q", "/lengths/", "/lengths/P_1/x", "/lengths/..", "/lengths"}) {
    CAPTURE(path);
    CHECK(absl::StartsWith(Get(server->port(), path), "HTTP/1.1 404"));
  }
}

TEST_CASE("other paths, other methods and nonsense are refused", "[http]") {
  const auto server = StartServer();
  const auto status = [&](const std::string& request) { return Ask(server->port(), request).substr(0, 12); };
  CHECK(status("GET / HTTP/1.1\r\n\r\n") == "HTTP/1.1 404");
  CHECK(status("GET /metricsx HTTP/1.1\r\n\r\n") == "HTTP/1.1 404");
  CHECK(status("GET /../metrics HTTP/1.1\r\n\r\n") == "HTTP/1.1 404");
  CHECK(status("POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi") == "HTTP/1.1 404");
  CHECK(status("nonsense\r\n\r\n") == "HTTP/1.1 400");
  CHECK(status("GET /" + std::string(20'000, 'x') + " HTTP/1.1\r\n\r\n") == "HTTP/1.1 414");
  CHECK(absl::StartsWith(Get(server->port(), "/metrics"), "HTTP/1.1 200"));
}

TEST_CASE("a body that is too long is refused by its announced length", "[http]") {
  const auto server = StartServer();
  Connection connection(server->port());
  connection.Send("POST /metrics HTTP/1.1\r\nContent-Length: 999999999\r\n\r\nhi");
  connection.Finish();
  CHECK(absl::StartsWith(connection.Receive(), "HTTP/1.1 413"));
}

TEST_CASE("headers without an end are cut off", "[http]") {
  const auto server = StartServer();
  std::string request = "GET /metrics HTTP/1.1\r\n";
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&request, "X-Header: ", i, "\r\n");
  CHECK(!absl::StrContains(Ask(server->port(), request), "200 OK"));
  CHECK(absl::StartsWith(Get(server->port(), "/livez"), "HTTP/1.1 200"));
}

TEST_CASE("a page that throws is an error that tells nothing", "[http]") {
  const auto server =
      StartServer({[]() -> std::string { throw std::runtime_error("secret"); }, [] { return std::optional<std::string>(); }});
  const std::string reply = Get(server->port(), "/metrics");
  CHECK(absl::StartsWith(reply, "HTTP/1.1 500"));
  CHECK(!absl::StrContains(reply, "secret"));
}

TEST_CASE("a large page arrives whole", "[http]") {
  std::string page(3'000'000, 'm');
  const auto server = StartServer({[&] { return std::string(page); }, [] { return std::optional<std::string>(); }});
  CHECK(absl::EndsWith(Get(server->port(), "/metrics"), "\r\n\r\n" + page));
}

TEST_CASE("more connections than threads are served, one request each", "[http]") {
  const auto server = StartServer();
  std::vector<std::unique_ptr<Connection>> connections(32);
  for (auto& connection : connections) connection = std::make_unique<Connection>(server->port());
  for (const auto& connection : connections) connection->Send("GET /livez HTTP/1.1\r\n\r\n");
  for (const auto& connection : connections) CHECK(absl::StartsWith(connection->Receive(), "HTTP/1.1 200"));
}

TEST_CASE("idle and half requests, however many, leave room for a probe", "[http]") {
  const auto server = StartServer({[] { return std::string(); }, [] { return std::optional<std::string>(); }}, 8);
  std::vector<std::unique_ptr<Connection>> connections(50);
  for (std::size_t i = 0; i < connections.size(); ++i) {
    connections[i] = std::make_unique<Connection>(server->port());
    connections[i]->Send(i % 2 == 0 ? "GET /met" : "");
  }
  CHECK(absl::StartsWith(Get(server->port(), "/livez"), "HTTP/1.1 200"));
  // Each waits no longer than a second, or for less where another needs its place.
  for (const auto& connection : connections) CHECK(connection->Receive().empty());
}

TEST_CASE("a body that does not come is not waited for", "[http]") {
  const auto server = StartServer();
  std::vector<std::unique_ptr<Connection>> connections(16);
  for (auto& connection : connections) {
    connection = std::make_unique<Connection>(server->port());
    connection->Send("POST /metrics HTTP/1.1\r\nContent-Length: 100\r\n\r\n");
  }
  CHECK(absl::StartsWith(Get(server->port(), "/livez"), "HTTP/1.1 200"));
  for (const auto& connection : connections) CHECK(absl::StartsWith(connection->Receive(), "HTTP/1.1 400"));
}

TEST_CASE("a request that comes in pieces is served", "[http]") {
  const auto server = StartServer();
  Connection connection(server->port());
  for (const char letter : std::string("GET /livez HTTP/1.1\r\nHost: test\r\n\r\n")) connection.Send(std::string(1, letter));
  CHECK(absl::StartsWith(connection.Receive(), "HTTP/1.1 200"));
}

TEST_CASE("the end does not wait for idle, half or many clients", "[http]") {
  auto server = StartServer();
  std::vector<std::unique_ptr<Connection>> connections(32);
  for (std::size_t i = 0; i < connections.size(); ++i) {
    connections[i] = std::make_unique<Connection>(server->port());
    if (i % 2 == 0) connections[i]->Send("GET /met");
  }
  const TimePoint before = RealClock().Now();
  server.reset();
  CHECK(Seconds(RealClock().Now() - before) < 1.0);
  for (const auto& connection : connections) CHECK(connection->Receive().empty());
}

TEST_CASE("the end does not wait for a client that does not read its reply", "[http]") {
  std::string page;
  page.resize(30'000'000, 'm');
  std::atomic<bool> asked = false;
  auto server = StartServer({[&] {
                               asked = true;
                               asked.notify_one();
                               return std::string(page);
                             },
                             [] { return std::optional<std::string>(); }});
  Connection connection(server->port());
  connection.Send("GET /metrics HTTP/1.1\r\n\r\n");
  asked.wait(false);
  const TimePoint before = RealClock().Now();
  server.reset();
  // A reply may take five seconds. The bound leaves a sanitizer time to make the page.
  CHECK(Seconds(RealClock().Now() - before) < 3.0);
}

TEST_CASE("a server that was just started can end at once", "[http]") {
  for (int i = 0; i < 20; ++i) StartServer();
}

TEST_CASE("an address that cannot be listened on is named", "[http]") {
  const HttpHandlers handlers{[] { return std::string(); }, [] { return std::optional<std::string>(); }};
  const auto server = StartServer();
  const std::string taken = absl::StrCat("127.0.0.1:", server->port());
  const absl::Status in_use = HttpServer::Start("127.0.0.1", server->port(), handlers).status();
  CHECK(in_use.message() == "cannot listen for HTTP on " + taken + ": Address already in use");

  const absl::Status foreign = HttpServer::Start("192.0.2.1", 1, handlers).status();
  CHECK(foreign.message() == "cannot listen for HTTP on 192.0.2.1:1: Cannot assign requested address");
  const absl::Status unknown = HttpServer::Start("no-such-host.invalid", 8002, handlers).status();
  CHECK(absl::StartsWith(unknown.message(), "cannot listen for HTTP on no-such-host.invalid:8002: "));
}

TEST_CASE("IPv6 addresses and names are listened on", "[http]") {
  const HttpHandlers handlers{[] { return std::string(); }, [] { return std::optional<std::string>(); }};
  CHECK(HttpServer::Start("localhost", 0, handlers).ok());
  const auto server = HttpServer::Start("::1", 0, handlers);
  if (!server.ok()) {
    CHECK(absl::StartsWith(server.status().message(), "cannot listen for HTTP on [::1]:0: "));
    WARN("this machine has no IPv6");
    return;
  }
  Connection connection((*server)->port(), true);
  connection.Send("GET /livez HTTP/1.1\r\n\r\n");
  CHECK(absl::StartsWith(connection.Receive(), "HTTP/1.1 200"));
}

}  // namespace
}  // namespace headroom
