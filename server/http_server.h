// The HTTP port: metrics for Prometheus, what they are too coarse for, and probes for an orchestrator. Nothing else is served here.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace headroom {

// Called on the server's threads, several at once.
struct HttpHandlers {
  // The metrics page in Prometheus' text format.
  std::function<std::string()> metrics;
  // Why the server is not ready, in words for an operator; nullopt where it is ready.
  std::function<std::optional<std::string>()> not_ready;
  // What a ready server leaves out for lack of memory, in words; empty where it leaves out nothing.
  std::function<std::string()> degraded = [] { return std::string(); };
  // What the models' ladders of buckets cost, and better ones: a JSON object.
  std::function<std::string()> ladders = [] { return std::string("{}\n"); };
  // How often each true length has come to the model, as CSV; nullopt where no model of variable length is served by that name.
  std::function<std::optional<std::string>(const std::string& model)> lengths = [](const std::string&) {
    return std::optional<std::string>();
  };
};

//   GET /metrics  200, the page
//   GET /livez    200 while the process lives
//   GET /readyz   200 "ready" or "ready, degraded: …", or 503 and the reason
//   GET /ladders  200, JSON: buckets, what they cost, and better ones
//   GET /lengths/MODEL  200, CSV: how often each true length has come, as `headroom plan --traffic` reads it
//   any other     404
//
// Each connection serves one request, whose head must arrive whole within a second. Until it has, the connection only waits: no
// thread waits with it, so that idle and slow clients, however many, cannot keep the few threads from a probe. With
// `most_connections` open the one that has waited longest is closed for a new one. A body that has not come with the head is not
// waited for: nothing here takes one. Thread-safe.
class HttpServer {
 public:
  // Listens on host:port (a name, an IPv4 or an IPv6 address without brackets; port 0 takes a free one) and serves from threads of
  // its own. Ends in an error that names the address where it cannot listen there, be it in use, unknown or forbidden.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& host, int port, const HttpHandlers& handlers,
                                                           std::size_t most_connections = 256);

  // Stops listening and joins the threads, within a second, whatever the clients do.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The port that is listened on.
  int port() const;

 private:
  class Listener;
  explicit HttpServer(std::unique_ptr<Listener> listener);

  const std::unique_ptr<Listener> listener_;
};

}  // namespace headroom
