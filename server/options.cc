#include "server/options.h"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace headroom {
namespace {

using Faults = std::vector<std::string>;

// Enough for a few small requests beside gRPC's own buffers; with less nothing could be told from a mistake.
constexpr Bytes kLeastHostLimit = MiB(1);

std::string Quoted(const std::string& text) { return absl::StrCat("\"", absl::CEscape(text), "\""); }

// Only digits: SimpleAtoi alone takes signs and blanks.
bool ReadNatural(const std::string& text, int& value) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         absl::SimpleAtoi(text, &value);
}

bool IsHostCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

bool IsHost(const std::string& host) { return !host.empty() && std::all_of(host.begin(), host.end(), IsHostCharacter); }

bool IsBracketedIpv6(const std::string& host) {
  return host.size() > 4 && host.front() == '[' && host.back() == ']' && host.find(':') != std::string::npos &&
         std::all_of(host.begin() + 1, host.end() - 1, [](char c) { return IsHostCharacter(c) || c == ':' || c == '%'; });
}

constexpr const char* kUnixPrefix = "unix:";

absl::StatusOr<Address> ParseUnixAddress(const std::string& text) {
  constexpr std::size_t kLongestPath = 107;  // the kernel's, without the NUL
  const std::string path = text.substr(std::string(kUnixPrefix).size());
  const bool plain =
      std::none_of(path.begin(), path.end(), [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
  if (path.size() > 1 && path.front() == '/' && path.back() != '/' && path.size() <= kLongestPath && plain) return Address{text, 0};
  return absl::InvalidArgumentError(
      absl::StrCat("must be unix: and an absolute path of at most ", kLongestPath, " bytes, not ", Quoted(text)));
}

template <class T>
void CheckRange(const char* flag, T value, T min, T max, const char* unit, Faults& faults) {
  if (value >= min && value <= max) return;
  faults.push_back(absl::StrCat(flag, " must be from ", min, " to ", max, unit, ", not ", value));
}

void CheckModels(const ModelOptions& models, Faults& faults) {
  if (models.model_repository.empty()) {
    faults.push_back("--model-repository is required: the folder that holds the models");
  }
  // Written so that NaN is a fault.
  if (!(models.memory_fraction > 0 && models.memory_fraction <= 1)) {
    faults.push_back(absl::StrCat("--memory-fraction must be above 0 and at most 1, not ", models.memory_fraction));
  }
  if (models.memory_limit && models.memory_limit->count <= 0) {
    faults.push_back(absl::StrCat("--memory-limit must be above 0 bytes, not ", models.memory_limit->count));
  }
  CheckRange("--intra-op-threads", models.intra_op_threads, 1, 1024, "", faults);
  CheckRange("--max-intra-op-threads", models.max_intra_op_threads, 0, 1024, "", faults);
}

void CheckLimits(const RequestLimits& limits, Faults& faults) {
  // gRPC takes a message size as an int.
  constexpr std::int64_t kLargestMessage = std::numeric_limits<std::int32_t>::max();
  CheckRange("--max-message-size", limits.max_message_size.count, KiB(1).count, kLargestMessage, " bytes", faults);
  CheckRange("--max-inputs", limits.max_inputs, 1, 1'000'000, "", faults);
  CheckRange("--max-rank", limits.max_rank, 1, 64, "", faults);
  CheckRange<std::int64_t>("--max-request-rows", limits.max_request_rows, 1, 1'000'000'000, "", faults);
  CheckRange("--max-name-length", limits.max_name_length, 1, 1'000'000, " bytes", faults);
  CheckRange("--max-stream-calls", limits.max_stream_calls, 1, 65'536, "", faults);
}

// As gRPC takes the name of a metadata entry whose value is text.
bool IsMetadataKey(const std::string& key) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.'; };
  return std::all_of(key.begin(), key.end(), allowed) && key.rfind("grpc-", 0) != 0 && !absl::EndsWith(key, "-bin");
}

void CheckBreaker(const BreakerOptions& breaker, Faults& faults) {
  if (!IsMetadataKey(breaker.caller_key)) {
    faults.push_back(
        absl::StrCat("--caller-metadata-key must be of lower-case letters, digits, '-', '_' and '.', not begin with "
                     "grpc- and not end with -bin, not be ",
                     Quoted(breaker.caller_key)));
  }
  if (!(breaker.abnormal_share > 0 && breaker.abnormal_share <= 1)) {
    faults.push_back(absl::StrCat("--breaker-share must be above 0 and at most 1, not ", breaker.abnormal_share));
  }
  CheckRange("--breaker-requests", breaker.least_requests, 1, 1'000'000, "", faults);
  CheckRange("--breaker-window-seconds", breaker.window_seconds, 1, 3600, " s", faults);
  CheckRange("--breaker-cool-down-seconds", breaker.cool_down_seconds, 1, 3600, " s", faults);
  CheckRange("--breaker-callers", breaker.most_callers, 1, 1'000'000, "", faults);
}

void CheckLifecycle(const ServeOptions& options, Faults& faults) {
  CheckRange("--settle-seconds", options.settle_seconds, 0, 3600, " s", faults);
  const WatchdogOptions& watchdog = options.watchdog;
  // Below a few times the estimate every slow moment would end the server. Written so that NaN is a fault.
  if (watchdog.multiple != 0 && !(watchdog.multiple >= 5 && watchdog.multiple <= 1e6)) {
    faults.push_back(absl::StrCat("--watchdog-multiple must be 0, or from 5 to 1000000, not ", watchdog.multiple));
  }
  CheckRange("--watchdog-least-seconds", watchdog.least_seconds, 1, 86'400, " s", faults);
  const ReadinessOptions& readiness = options.readiness;
  if (!(readiness.min_memory_headroom >= 0 && readiness.min_memory_headroom < 1)) {
    faults.push_back(absl::StrCat("--ready-min-memory-headroom must be from 0 to below 1, not ", readiness.min_memory_headroom));
  }
  CheckRange<std::int64_t>("--ready-max-queue-delay-ms", readiness.max_queue_delay_ms, 0, 3'600'000, " ms", faults);
  CheckRange<std::int64_t>("--ready-max-latency-ms", readiness.max_latency_ms, 0, 3'600'000, " ms", faults);
}

constexpr int kDay = 86'400;

void CheckWire(const WireLimits& wire, Faults& faults) {
  CheckRange("--max-metadata-size", wire.max_metadata_size.count, KiB(4).count, MiB(1).count, " bytes", faults);
  CheckRange("--max-streams", wire.max_streams, 1, 65'536, "", faults);
  CheckRange("--max-connections", wire.max_connections, 1, 1'000'000, "", faults);
  CheckRange("--handshake-seconds", wire.handshake_seconds, 1, 600, " s", faults);
  CheckRange("--keepalive-seconds", wire.keepalive_seconds, 1, kDay, " s", faults);
  CheckRange("--keepalive-timeout-seconds", wire.keepalive_timeout_seconds, 1, 600, " s", faults);
  CheckRange("--min-ping-seconds", wire.min_ping_seconds, 1, 600, " s", faults);
  CheckRange("--max-ping-strikes", wire.max_ping_strikes, 1, 1'000, "", faults);
  CheckRange("--connection-age-seconds", wire.connection_age_seconds, 0, kDay, " s", faults);
  CheckRange("--connection-grace-seconds", wire.connection_grace_seconds, 0, kDay, " s", faults);
  CheckRange("--connection-idle-seconds", wire.connection_idle_seconds, 0, kDay, " s", faults);
  CheckRange("--max-abandoned-per-second", wire.max_abandoned_per_second, 0, 1'000'000, "", faults);
  if (wire.stream_window.count != 0) {
    // Less than a frame stalls; more than gRPC's own bound is not taken.
    CheckRange("--stream-window", wire.stream_window.count, KiB(16).count, MiB(16).count, " bytes (or 0)", faults);
  }
  CheckRange("--max-http-connections", wire.max_http_connections, 8, 65'536, "", faults);
}

void CheckPair(const char* flag, const std::string& value, const char* other_flag, const std::string& other, Faults& faults) {
  if (!value.empty() && other.empty()) faults.push_back(absl::StrCat(flag, " needs ", other_flag));
}

void CheckSecurity(const ServeOptions& options, Faults& faults) {
  const TlsFiles& tls = options.tls;
  CheckPair("--tls-certificate", tls.certificate, "--tls-key", tls.key, faults);
  CheckPair("--tls-key", tls.key, "--tls-certificate", tls.certificate, faults);
  CheckPair("--tls-client-ca", tls.client_ca, "--tls-certificate", tls.certificate, faults);
  if (options.management_address && !options.model_control) faults.emplace_back("--management-address needs --model-control on");
  if (!options.management_token_file.empty() && !options.management_address) {
    faults.emplace_back("--management-token-file needs --management-address");
  }
}

// Two listeners on one address would be a mistake that only the second one's failure tells.
void CheckAddresses(const ServeOptions& options, Faults& faults) {
  if (IsUnix(options.http_address)) faults.emplace_back("--http-address must be host:port");
  std::vector<std::pair<const char*, Address>> seen = {{"--grpc-address", options.grpc_address},
                                                       {"--http-address", options.http_address}};
  if (options.management_address) seen.emplace_back("--management-address", *options.management_address);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    for (std::size_t j = i + 1; j < seen.size(); ++j) {
      const auto& [flag, address] = seen[j];
      if (address != seen[i].second || (address.port == 0 && !IsUnix(address))) continue;
      faults.push_back(absl::StrCat(flag, " must differ from ", seen[i].first, ", both are ", ToString(address)));
    }
  }
}

}  // namespace

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  if (absl::StartsWith(text, kUnixPrefix)) return ParseUnixAddress(text);
  const std::size_t colon = text.rfind(':');
  if (colon != std::string::npos) {
    Address address{text.substr(0, colon), 0};
    const bool bracketed = IsBracketedIpv6(address.host);
    const std::string port = text.substr(colon + 1);
    if ((bracketed || IsHost(address.host)) && ReadNatural(port, address.port) && address.port <= 65535) {
      if (bracketed) address.host = address.host.substr(1, address.host.size() - 2);
      return address;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("must be host:port or [IPv6]:port with a port from 0 to 65535, not ", Quoted(text)));
}

bool IsUnix(const Address& address) { return absl::StartsWith(address.host, kUnixPrefix); }

std::string ToString(const Address& address) {
  if (IsUnix(address)) return address.host;
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return ipv6 ? absl::StrCat("[", address.host, "]:", address.port) : absl::StrCat(address.host, ":", address.port);
}

absl::StatusOr<DeviceSelection> ParseDeviceSelection(const std::string& text) {
  using Kind = DeviceSelection::Kind;
  if (text == "auto") return DeviceSelection{Kind::kAuto, {}};
  if (text == "cpu") return DeviceSelection{Kind::kCpu, {}};
  if (text == "cuda") return DeviceSelection{Kind::kCuda, {}};
  const absl::Status fault =
      absl::InvalidArgumentError(absl::StrCat("must be auto, cpu, cuda, or cuda:0,1 (each index once), not ", Quoted(text)));
  if (text.rfind("cuda:", 0) != 0) return fault;
  DeviceSelection selection{Kind::kCuda, {}};
  const std::vector<std::string> indices = absl::StrSplit(text.substr(5), ',');
  for (const std::string& index : indices) {
    int value = 0;
    if (!ReadNatural(index, value)) return fault;
    const auto& seen = selection.cuda_indices;
    if (std::find(seen.begin(), seen.end(), value) != seen.end()) return fault;
    selection.cuda_indices.push_back(value);
  }
  return selection;
}

std::string ToString(const DeviceSelection& selection) {
  switch (selection.kind) {
    case DeviceSelection::Kind::kAuto: return "auto";
    case DeviceSelection::Kind::kCpu: return "cpu";
    case DeviceSelection::Kind::kCuda: break;
  }
  return selection.cuda_indices.empty() ? "cuda" : absl::StrCat("cuda:", absl::StrJoin(selection.cuda_indices, ","));
}

std::vector<std::string> Validate(const ServeOptions& options) {
  Faults faults;
  CheckModels(options.models, faults);
  if (options.workers) CheckRange("--workers", *options.workers, 1, 1024, "", faults);
  CheckAddresses(options, faults);
  CheckLimits(options.limits, faults);
  if (options.host_memory_limit && *options.host_memory_limit < kLeastHostLimit) {
    faults.push_back(absl::StrCat("--host-memory-limit must be at least ", ToString(kLeastHostLimit), ", not ",
                                  options.host_memory_limit->count, " bytes"));
  }
  CheckRange<std::int64_t>("--max-queue-rows", options.queue.max_rows, 0, 1'000'000'000, "", faults);
  if (options.queue.max_bytes < Bytes{0}) {
    faults.push_back(absl::StrCat("--max-queue-bytes must be at least 0, not ", options.queue.max_bytes.count));
  }
  if (!(options.queue.max_wait_seconds > 0 && options.queue.max_wait_seconds <= 86'400)) {
    faults.push_back(absl::StrCat("--max-wait-seconds must be above 0 and at most 86400, not ", options.queue.max_wait_seconds));
  }
  CheckBreaker(options.breaker, faults);
  CheckRange("--drain-seconds", options.drain_seconds, 0, 86'400, " s", faults);
  CheckLifecycle(options, faults);
  CheckWire(options.wire, faults);
  CheckSecurity(options, faults);
  return faults;
}

std::vector<std::string> Validate(const PlanOptions& options) {
  Faults faults;
  CheckModels(options.models, faults);
  constexpr std::size_t kMostCards = 64;  // as many devices as libtorch can count
  if (options.cards.size() > kMostCards) {
    faults.push_back(absl::StrCat("--card may name ", kMostCards, " cards, not ", options.cards.size()));
  }
  if (!options.cards.empty() && options.models.device.kind != DeviceSelection::Kind::kAuto) {
    faults.push_back(absl::StrCat("--device ", ToString(options.models.device), " cannot be had with --card"));
  }
  if (options.card_allowance < Bytes{0} || options.card_allowance > GiB(1024)) {
    faults.push_back(absl::StrCat("--card-allowance must be from 0 to 1TiB, not ", options.card_allowance.count));
  }
  if (!options.traffic_mix.empty() && options.traffic.empty()) {
    faults.push_back("--traffic-mix is for a table of quantiles that --traffic names");
  }
  if (options.buckets) {
    CheckRange<std::int64_t>("--buckets", *options.buckets, 1, 64, "", faults);
    if (options.traffic.empty()) faults.push_back("--buckets is for a traffic that --traffic names");
  }
  CheckRange<std::int64_t>("--bucket-multiple", options.bucket_multiple, 1, 4096, "", faults);
  return faults;
}

std::vector<std::string> Validate(const HealthOptions& options) {
  Faults faults;
  if (options.address.port == 0 && !IsUnix(options.address)) {
    faults.push_back("--address must name a port from 1 to 65535, not 0");
  }
  CheckPair("--tls-certificate", options.tls_certificate, "--tls-key", options.tls_key, faults);
  CheckPair("--tls-key", options.tls_key, "--tls-certificate", options.tls_certificate, faults);
  if (!(options.timeout_seconds > 0 && options.timeout_seconds <= 3600)) {
    faults.push_back(absl::StrCat("--timeout must be above 0 and at most 3600 s, not ", options.timeout_seconds));
  }
  return faults;
}

}  // namespace headroom
