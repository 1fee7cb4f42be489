#include "server/http_server.h"

// Debian builds the library with TLS, which adds members to types that it shares with its users: without this they would not match.
#ifndef CPPHTTPLIB_OPENSSL_SUPPORT
#define CPPHTTPLIB_OPENSSL_SUPPORT
#endif

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <httplib.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <future>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"

namespace headroom {
namespace {

constexpr std::size_t kThreads = 4;
constexpr int kBacklog = 64;
constexpr std::size_t kMaxRequestBytes = 64 << 10;
constexpr std::size_t kMaxBodyBytes = 4 << 10;
constexpr Duration kRequestTime = std::chrono::seconds(1);
constexpr Duration kReplyTime = std::chrono::seconds(5);
constexpr const char* kText = "text/plain; charset=utf-8";
constexpr const char* kPrometheusText = "text/plain; version=0.0.4; charset=utf-8";

// A connection with a bound on its whole request and on its whole reply. The library's own stream bounds each read alone, so that
// a client that sends a byte now and then could keep a thread for hours.
class BoundedStream : public httplib::Stream {
 public:
  explicit BoundedStream(int socket) : socket_(socket) {}

  bool is_readable() const override { return !unread_.empty() || Wait(POLLIN, request_by_); }
  bool is_writable() const override { return Wait(POLLOUT, reply_by_); }

  ssize_t read(char* to, std::size_t size) override {
    if (unread_.empty()) {  // the library reads byte by byte
      if (received_ >= kMaxRequestBytes || !is_readable()) return -1;
      const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
      if (got <= 0) return got;
      unread_ = {buffer_.data(), static_cast<std::size_t>(got)};
      received_ += unread_.size();
    }
    const std::size_t taken = unread_.copy(to, size);
    unread_.remove_prefix(taken);
    return static_cast<ssize_t>(taken);
  }
  ssize_t write(const char* from, std::size_t size) override {
    if (!is_writable()) return -1;
    // Never blocks: a reader that is slow is waited for above, within the bound.
    return ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  // No handler asks for them.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  int socket() const override { return socket_; }

 private:
  bool Wait(short events, TimePoint until) const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - RealClock().Now()).count();
      if (left <= 0) return false;
      pollfd polled{socket_, events, 0};
      const int ready = ::poll(&polled, 1, static_cast<int>(left));
      if (ready >= 0 || errno != EINTR) return ready == 1;
    }
  }

  const int socket_;
  const TimePoint request_by_ = RealClock().Now() + kRequestTime;
  const TimePoint reply_by_ = request_by_ + kReplyTime;
  std::array<char, 4096> buffer_{};
  std::string_view unread_;  // of buffer_
  std::size_t received_ = 0;
};

void Route(httplib::Server& server, const HttpHandlers& handlers) {
  server.Get("/metrics", [metrics = handlers.metrics](const httplib::Request&, httplib::Response& reply) {
    reply.set_content(metrics(), kPrometheusText);
  });
  server.Get("/livez", [](const httplib::Request&, httplib::Response& reply) { reply.set_content("live\n", kText); });
  server.Get(
      "/readyz", [not_ready = handlers.not_ready, degraded = handlers.degraded](const httplib::Request&, httplib::Response& reply) {
        const std::optional<std::string> reason = not_ready();
        if (reason) reply.status = 503;
        const std::string missing = reason ? "" : degraded();
        reply.set_content(absl::StrCat(reason.value_or(missing.empty() ? "ready" : "ready, degraded: "), missing, "\n"), kText);
      });
  // Called for every status of 400 and above; a body that is there already is the answer.
  server.set_error_handler([](const httplib::Request&, httplib::Response& reply) {
    if (!reply.body.empty()) return;
    reply.set_content(reply.status == 404 ? std::string("not found; there are /metrics, /livez and /readyz\n")
                                          : absl::StrCat("refused with status ", reply.status, "\n"),
                      kText);
  });
  // The library's own answer would show the exception's text to the client.
  server.set_exception_handler([](const httplib::Request& request, httplib::Response& reply, const std::exception_ptr&) {
    Log(LogLevel::kError, "an HTTP request failed", {{"path", request.path}});
    reply.status = 500;
    reply.set_content("internal error\n", kText);
  });
}

std::string AddressText(const std::string& host, int port) {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

// Why host:port cannot be listened on; `error` is what binding left in errno.
absl::Status CannotListen(const std::string& host, int port, int error) {
  addrinfo* found = nullptr;
  const int unresolved = ::getaddrinfo(host.c_str(), nullptr, nullptr, &found);
  if (unresolved == 0) ::freeaddrinfo(found);
  const std::string reason = unresolved != 0 ? ::gai_strerror(unresolved) : std::generic_category().message(error);
  return absl::UnavailableError(absl::StrCat("cannot listen for HTTP on ", AddressText(host, port), ": ", reason));
}

}  // namespace

// The library's server, made to end at once: it knows its open connections.
class HttpServer::Listener : private httplib::Server {
 public:
  explicit Listener(const HttpHandlers& handlers) {
    Route(*this, handlers);
    set_payload_max_length(kMaxBodyBytes);
    // Without SO_REUSEPORT, which the library sets: a second server on the port must fail, not share it.
    set_socket_options([](int socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    new_task_queue = [this] {
      // Called once stop() has an effect.
      running_.set_value();
      return new httplib::ThreadPool(kThreads);
    };
  }

  ~Listener() override {
    if (!thread_.joinable()) return;
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      for (const int socket : open_) ::shutdown(socket, SHUT_RDWR);
    }
    stop();
    thread_.join();
  }

  absl::Status Bind(const std::string& host, int port) {
    errno = 0;
    port_ = port == 0 ? bind_to_any_port(host) : (bind_to_port(host, port) ? port : -1);
    if (port_ < 0) return CannotListen(host, port, errno);
    ::listen(svr_sock_, kBacklog);  // the library's own 5 are few for a burst of probes
    return absl::OkStatus();
  }

  void Serve() {
    thread_ = std::thread([this] {
      listen_after_bind();
      MutexLock lock(mutex_);
      if (!stopping_) Log(LogLevel::kError, "the HTTP server stopped by itself");
    });
    running_.get_future().wait();
  }

  int port() const { return port_; }

 private:
  bool process_and_close_socket(int socket) override {
    bool served = false;
    if (Open(socket)) {
      BoundedStream stream(socket);
      bool closed = false;
      served = process_request(stream, /*close_connection=*/true, closed, nullptr);
    }
    Close(socket);
    return served;
  }

  // False where the server is stopping.
  bool Open(int socket) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!stopping_) open_.insert(socket);
    return !stopping_;
  }
  void Close(int socket) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    open_.erase(socket);
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
  }

  // Constant after Serve.
  int port_ = -1;
  std::thread thread_;
  std::promise<void> running_;

  Mutex mutex_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::set<int> open_ GUARDED_BY(mutex_);
};

HttpServer::HttpServer(std::unique_ptr<Listener> listener) : listener_(std::move(listener)) {}
HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& host, int port, const HttpHandlers& handlers) {
  auto listener = std::make_unique<Listener>(handlers);
  if (absl::Status status = listener->Bind(host, port); !status.ok()) return status;
  listener->Serve();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(listener)));
}

int HttpServer::port() const { return listener_->port(); }

}  // namespace headroom
