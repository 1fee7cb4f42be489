// What the command line says, as plain data: every setting with its default, its unit, and why it is so. Reading the command line
// itself is command_line.h's.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "server/card_presets.h"
#include "server/circuit_breaker.h"
#include "server/log_sink.h"
#include "server/readiness_thresholds.h"
#include "server/run_watchdog.h"
#include "server/traffic_file.h"

namespace headroom {

// Where to listen or to call: a host name, an IPv4 or an IPv6 address (without brackets), and a port; port 0 takes a free one. Or
// "unix:/path", a socket in the file system, without a port.
struct Address {
  std::string host;
  int port = 0;

  friend bool operator==(const Address&, const Address&) = default;
};

// Reads "host:port" or "[v6]:port", port 0 to 65535, or "unix:" and an absolute path of at most 107 bytes. INVALID_ARGUMENT for
// anything else.
absl::StatusOr<Address> ParseAddress(const std::string& text);
bool IsUnix(const Address& address);
// "127.0.0.1:8001", "[::1]:8001", "unix:/run/headroom.sock".
std::string ToString(const Address& address);

// Which devices to use.
struct DeviceSelection {
  enum class Kind {
    kAuto,  // every CUDA device, or the CPU where there is none
    kCpu,
    kCuda,
  };
  Kind kind = Kind::kAuto;
  std::vector<int> cuda_indices;  // of kCuda, each once; empty: every one

  friend bool operator==(const DeviceSelection&, const DeviceSelection&) = default;
};

// Reads "auto", "cpu", "cuda", "cuda:0", "cuda:0,1". INVALID_ARGUMENT for anything else.
absl::StatusOr<DeviceSelection> ParseDeviceSelection(const std::string& text);
std::string ToString(const DeviceSelection& selection);

// Which models, and what they may use of which devices: what `serve` and `plan` share, so that a plan tells what serving will do.
struct ModelOptions {
  std::string model_repository;  // a folder; required
  DeviceSelection device;

  // The share of the free memory that batches may hold together. The rest absorbs what no measurement foresees: fragmentation,
  // another process on the card, a library that loads a kernel late.
  double memory_fraction = 0.8;

  // What this process may use of each device. Not given: a GPU's own memory; on the CPU the container's limit less what is used.
  std::optional<Bytes> memory_limit;

  // Threads inside one run on the CPU. 1: under load several workers of one thread each beat one worker of several, which waits
  // for its slowest thread at every barrier.
  int intra_op_threads = 1;

  // What a run on the CPU may have while processors are idle: with nothing else to do, a batch alone is answered in half the time
  // on two. 0: as many as there are processors, at most 8. As many as intra_op_threads, or less: no run ever has more than those.
  int max_intra_op_threads = 0;

  // Where measurements are kept, so that a restart is fast. Empty: beside the model, which a read-only mount does not allow.
  std::string calibration_cache;

  // A file of SHA-256 digests, as sha256sum(1) prints them: what it does not list, or lists otherwise, is not loaded. Empty:
  // whatever is in the repository is. Best kept where those who may write to the repository may not.
  std::string model_manifest;
};

// What a request may be, checked before it costs memory.
struct RequestLimits {
  Bytes max_message_size = MiB(64);      // of one gRPC message, either way
  int max_inputs = 64;                   // tensors of a request
  int max_rank = 16;                     // dimensions of a tensor
  std::int64_t max_request_rows = 4096;  // rows of a request; more belong into several, which other clients can pass between
  int max_name_length = 128;             // bytes of a model's or an input's name, or of a version
  // Calls of one stream that are unanswered or whose answers are unwritten, before its next request is read. Enough to fill any
  // batch from one stream; a client that does not read its answers makes the server hold no more than these.
  int max_stream_calls = 64;
};

// What may wait, over all models; each model's own bounds are in its configuration.
struct QueueOptions {
  std::int64_t max_rows = 16384;  // 0: no bound. Far more than a second's work of one device; memory is bounded by bytes
  Bytes max_bytes{0};             // of the inputs of waiting rows; 0: no bound but the host memory limit
  // How long a request may wait whose client gives no deadline, and its model no timeout: so long a wait helps nobody, and rows
  // that nobody waits for any more must not be run before those of clients that do.
  double max_wait_seconds = 60;
};

// What the gRPC ports allow a client on the wire, before there is a request to look at. 0 seconds: no such limit, where that may
// be.
struct WireLimits {
  // Metadata of a call. Above what common proxies let through (Envoy's 60 KiB is the most): a header block that this server refuses
  // while the proxy before it does not is how the two come to disagree on what follows.
  Bytes max_metadata_size = KiB(64);
  // Calls that a connection may have open. What is beyond waits in the client's library, as with nginx.
  int max_streams = 128;
  // Open connections; one beyond is closed at once, so that its client may try another server. Each takes a file descriptor.
  int max_connections = 4096;
  // From the connection to the first frame of HTTP/2, TLS included: a client on a bad line takes 2 s.
  int handshake_seconds = 10;
  // A connection that was silent for so long is asked whether its peer is there, and closed where no answer comes: peers that
  // vanish would otherwise be kept for hours.
  int keepalive_seconds = 60;
  int keepalive_timeout_seconds = 20;
  // How often a client may ping. Common ones do each 10 s, with or without calls; gRPC's own 5 minutes would take that for abuse.
  int min_ping_seconds = 5;
  // Pings sooner than that, since something was last sent, before the connection is closed.
  int max_ping_strikes = 2;
  // After so long a client is asked to connect anew: calls go on until they end. It is how traffic finds a new replica behind a
  // balancer of connections.
  int connection_age_seconds = 300;
  // How long calls may go on after that. 0: until they end, since streams live for hours.
  int connection_grace_seconds = 0;
  // A connection without a call for so long is closed. 0: its age closes it as well.
  int connection_idle_seconds = 0;
  // Calls that a connection may give up a second, with a burst of ten seconds' worth, before it is closed; a call whose deadline
  // has passed does not count. Clients that hedge give up dozens, an attack tens of thousands. 0: any number.
  int max_abandoned_per_second = 100;
  // What of one call may be under way unread, beside the rest of a message that is being read. 0: HTTP/2's 64 KiB.
  Bytes stream_window{0};
  // Whether requests may be compressed (gzip). What they grow to is bounded by max_message_size while they grow.
  bool compression = true;
  // Connections to the HTTP port that may be open. One serves one request within a second, so that a few hundred are many.
  int max_http_connections = 256;
};

// PEM files, re-read when they change; empty: none.
struct TlsFiles {
  std::string certificate;  // the server's, with its chain
  std::string key;
  std::string client_ca;  // clients must show a certificate of one of these authorities
};

struct ServeOptions {
  ModelOptions models;
  RequestLimits limits;

  // What requests may take of the host's memory together: messages, queue, staging and replies. Not given: DefaultHostLimit.
  std::optional<Bytes> host_memory_limit;

  Address grpc_address{"0.0.0.0", 8001};  // Triton's ports, so that an existing deployment fits
  Address http_address{"0.0.0.0", 8002};  // metrics and probes

  // Batches that run at once on a device. Not given: a worker for each core on the CPU, one on a GPU, where runs would only
  // contend for the same memory and the same units.
  std::optional<int> workers;

  QueueOptions queue;
  BreakerOptions breaker;

  LogFormat log_format = LogFormat::kText;
  LogLevel log_level = LogLevel::kInfo;

  std::string ready_file;      // written once the server is ready; empty: none
  bool model_control = false;  // clients may load and unload models: off, as a model is code

  // How long what was admitted may take after SIGTERM before it is refused. As long as Kubernetes waits before it kills.
  int drain_seconds = 30;

  // How long after SIGTERM late calls are still served, while health says that the server is not ready: for load balancers that
  // notice it late. 0: they are refused at once, and a client's retry finds another server.
  int settle_seconds = 0;

  WatchdogOptions watchdog;
  ReadinessOptions readiness;
  WireLimits wire;
  TlsFiles tls;  // of every gRPC port but a unix socket's

  // Tokens, one a line, one of which every call must show but those that ask whether the server lives. Empty: none is asked for.
  std::string token_file;

  // Where models are loaded and unloaded, and nothing is inferred. Not given: where inference is served.
  std::optional<Address> management_address;
  std::string management_token_file;  // of that address; empty: token_file
};

struct PlanOptions {
  ModelOptions models;
  bool json = false;

  // Cards to plan for, without having them; empty: the devices that there are.
  std::vector<PlanCard> cards;
  // What is taken of each such card before the first tensor: the CUDA context, kernels, libraries' internals. 300 to 500 MB are
  // usual for PyTorch's libraries; a real card will tell.
  Bytes card_allowance = MiB(500);

  std::string traffic;        // a CSV file of lengths; empty: none
  ColumnWeights traffic_mix;  // of the columns, where it is a table of quantiles

  // Of a ladder to be proposed for the traffic. Not given: as many buckets as the model has.
  std::optional<std::int64_t> buckets;
  // What a proposed bucket but the last is a multiple of: kernels for matrices like sizes of eights.
  std::int64_t bucket_multiple = 8;
};

struct HealthOptions {
  Address address{"127.0.0.1", 8001};
  double timeout_seconds = 5;
  bool tls = false;
  std::string tls_ca;           // authorities that the server's certificate may be of, PEM; empty: this machine's
  std::string tls_certificate;  // shown to a server that asks for one, PEM
  std::string tls_key;
  std::string tls_server_name;  // that the certificate must be for; empty: the address's host
};

// Every fault of the options, one a line of the form "--memory-fraction must be above 0 and at most 1, not 1.5"; empty where
// there is none. What can be told from the options alone: whether a folder exists is found out where it is opened.
std::vector<std::string> Validate(const ServeOptions& options);
std::vector<std::string> Validate(const PlanOptions& options);
std::vector<std::string> Validate(const HealthOptions& options);

}  // namespace headroom
