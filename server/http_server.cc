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
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <future>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

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
constexpr const char* kJson = "application/json";
constexpr const char* kCsv = "text/csv; charset=utf-8";
constexpr const char* kPrometheusText = "text/plain; version=0.0.4; charset=utf-8";

// The most that the kernel takes of a reply at once, so that a usual page leaves its thread at once however slowly it is read.
constexpr int kSendBuffer = 1 << 20;

// A connection whose request's head has come: what has come is read, and nothing is waited for. The whole reply has a bound; the
// library's own stream bounds each write alone, so that a client that reads a byte now and then could keep a thread for hours.
class BoundedStream : public httplib::Stream {
 public:
  BoundedStream(int socket, std::string_view received) : socket_(socket), unread_(received) {}

  bool is_readable() const override { return true; }
  bool is_writable() const override { return WaitToWrite(); }

  ssize_t read(char* to, std::size_t size) override {
    if (unread_.empty()) return ::recv(socket_, to, size, MSG_DONTWAIT);
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
  bool WaitToWrite() const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(reply_by_ - RealClock().Now()).count();
      if (left <= 0) return false;
      pollfd polled{socket_, POLLOUT, 0};
      const int ready = ::poll(&polled, 1, static_cast<int>(left));
      if (ready >= 0 || errno != EINTR) return ready == 1;
    }
  }

  const int socket_;
  const TimePoint reply_by_ = RealClock().Now() + kReplyTime;
  std::string_view unread_;
};

// Connections whose request's head has not come yet, all watched by one thread.
class Reception {
 public:
  struct Parts {
    std::function<void(int socket, std::string received)> serve;  // owns the socket from then on
    std::function<void(int socket)> close;
  };
  explicit Reception(Parts parts) : parts_(std::move(parts)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    thread_ = std::thread([this] { Run(); });
  }
  // Closes those that still wait.
  ~Reception() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    Wake();
    thread_.join();
    ::close(wake_);
  }
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  void Take(int socket) EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      arrived_.push_back(socket);
    }
    Wake();
  }
  // The one that has waited longest is to make room for another.
  void DropOldest() EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      ++to_drop_;
    }
    Wake();
  }

 private:
  struct Waiting {
    int socket;
    TimePoint until;
    std::string received;
  };
  enum class Progress { kWaits, kWhole, kOver };

  void Wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t told = ::write(wake_, &one, sizeof one);
  }

  void Run() {
    while (TakeArrivals()) {
      std::vector<pollfd> polled = {{wake_, POLLIN, 0}};
      for (const Waiting& each : waiting_) polled.push_back({each.socket, POLLIN, 0});
      ::poll(polled.data(), polled.size(), MillisecondsLeft());
      std::uint64_t told = 0;
      if (polled[0].revents != 0) [[maybe_unused]]
        const ssize_t got = ::read(wake_, &told, sizeof told);
      Look(polled);
    }
    for (const Waiting& each : waiting_) parts_.close(each.socket);
  }

  // False where it is to end.
  bool TakeArrivals() EXCLUDES(mutex_) {
    std::vector<int> arrived;
    std::size_t to_drop = 0;
    bool stopping = false;
    {
      MutexLock lock(mutex_);
      arrived.swap(arrived_);
      to_drop = std::exchange(to_drop_, 0);
      stopping = stopping_;
    }
    for (const int socket : arrived) waiting_.push_back({socket, RealClock().Now() + kRequestTime, {}});
    for (; to_drop > 0 && !waiting_.empty(); --to_drop) {
      parts_.close(waiting_.front().socket);
      waiting_.pop_front();
    }
    return !stopping;
  }

  // They wait equally long: the first is the next whose time is up.
  int MillisecondsLeft() const {
    if (waiting_.empty()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(waiting_.front().until - RealClock().Now()).count();
    return static_cast<int>(std::max<std::int64_t>(left, 0));
  }

  // `polled` has the same order, after the eventfd.
  void Look(const std::vector<pollfd>& polled) {
    const TimePoint now = RealClock().Now();
    std::size_t index = 0;
    std::erase_if(waiting_, [&](Waiting& each) {
      const bool readable = polled[++index].revents != 0;
      switch (readable ? Read(each) : Progress::kWaits) {
        case Progress::kWhole: parts_.serve(each.socket, std::move(each.received)); return true;
        case Progress::kOver: parts_.close(each.socket); return true;
        case Progress::kWaits: break;
      }
      if (now < each.until) return false;
      parts_.close(each.socket);
      return true;
    });
  }

  static Progress Read(Waiting& waiting) {
    constexpr std::string_view kEnd = "\r\n\r\n";
    std::array<char, 4096> piece{};
    while (true) {
      const ssize_t got = ::recv(waiting.socket, piece.data(), piece.size(), MSG_DONTWAIT);
      if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? Progress::kWaits : Progress::kOver;
      if (got == 0) return Progress::kOver;
      // An end may have come in two pieces.
      const std::size_t from = waiting.received.size() < kEnd.size() ? 0 : waiting.received.size() - kEnd.size();
      waiting.received.append(piece.data(), static_cast<std::size_t>(got));
      if (waiting.received.find(kEnd, from) != std::string::npos) return Progress::kWhole;
      if (waiting.received.size() >= kMaxRequestBytes) return Progress::kOver;
    }
  }

  const Parts parts_;
  const int wake_;
  std::deque<Waiting> waiting_;  // of the thread, the oldest first
  Mutex mutex_;
  std::vector<int> arrived_ GUARDED_BY(mutex_);
  std::size_t to_drop_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// The library wants to hand each connection to a thread of a pool: it is the reception's until its request has come.
class AtOnce final : public httplib::TaskQueue {
 public:
  void enqueue(std::function<void()> task) override { task(); }
  void shutdown() override {}
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
  server.Get("/ladders", [ladders = handlers.ladders](const httplib::Request&, httplib::Response& reply) {
    reply.set_content(ladders(), kJson);
  });
  server.Get(R"(/lengths/([A-Za-z0-9_-]{1,128}))",
             [lengths = handlers.lengths](const httplib::Request& request, httplib::Response& reply) {
               const std::optional<std::string> text = lengths(request.matches[1].str());
               if (!text) reply.status = 404;
               reply.set_content(text.value_or("no model of variable length is served by that name\n"), text ? kCsv : kText);
             });
  // Called for every status of 400 and above; a body that is there already is the answer.
  server.set_error_handler([](const httplib::Request&, httplib::Response& reply) {
    if (!reply.body.empty()) return;
    reply.set_content(reply.status == 404
                          ? std::string("not found; there are /metrics, /livez, /readyz, /ladders and, by model, /lengths\n")
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
  Listener(const HttpHandlers& handlers, std::size_t most_connections)
      : most_connections_(most_connections),
        pool_(kThreads),
        reception_(std::in_place,
                   Reception::Parts{[this](int socket, std::string received) {
                                      pool_.enqueue([this, socket, text = std::move(received)] { ServeRequest(socket, text); });
                                    },
                                    [this](int socket) { Close(socket); }}) {
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
      return new AtOnce;
    };
  }

  ~Listener() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      for (const int socket : open_) ::shutdown(socket, SHUT_RDWR);
    }
    if (thread_.joinable()) {
      stop();
      thread_.join();
    }
    reception_.reset();
    pool_.shutdown();
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
  // On the thread that accepts; the name is the library's.
  bool process_and_close_socket(int socket) override {
    switch (Open(socket)) {
      case Room::kNone: Close(socket); return false;
      case Room::kMade: reception_->DropOldest(); break;
      case Room::kEnough: break;
    }
    ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
    reception_->Take(socket);
    return true;
  }

  // On a thread of the pool.
  void ServeRequest(int socket, const std::string& received) {
    BoundedStream stream(socket, received);
    bool closed = false;
    process_request(stream, /*close_connection=*/true, closed, nullptr);
    Close(socket);
  }

  enum class Room { kNone, kMade, kEnough };
  // None where the server is stopping.
  Room Open(int socket) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (stopping_) return Room::kNone;
    const bool full = open_.size() >= most_connections_;
    open_.insert(socket);
    return full ? Room::kMade : Room::kEnough;
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

  const std::size_t most_connections_;
  httplib::ThreadPool pool_;
  std::optional<Reception> reception_;  // gives to the pool
};

HttpServer::HttpServer(std::unique_ptr<Listener> listener) : listener_(std::move(listener)) {}
HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& host, int port, const HttpHandlers& handlers,
                                                              std::size_t most_connections) {
  auto listener = std::make_unique<Listener>(handlers, most_connections);
  if (absl::Status status = listener->Bind(host, port); !status.ok()) return status;
  listener->Serve();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(listener)));
}

int HttpServer::port() const { return listener_->port(); }

}  // namespace headroom
