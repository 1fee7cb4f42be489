#include "server/options.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace headroom {
namespace {

ServeOptions Valid() {
  ServeOptions options;
  options.models.model_repository = "models";
  return options;
}

TEST_CASE("addresses are read", "[options]") {
  const std::vector<std::pair<std::string, Address>> cases = {
      {"127.0.0.1:8001", {"127.0.0.1", 8001}},
      {"0.0.0.0:0", {"0.0.0.0", 0}},
      {"localhost:65535", {"localhost", 65535}},
      {"node-1.example_zone.org:1", {"node-1.example_zone.org", 1}},
      {"[::1]:8002", {"::1", 8002}},
      {"[fe80::1%eth0]:8002", {"fe80::1%eth0", 8002}},
      {"unix:/run/head room.sock", {"unix:/run/head room.sock", 0}},
  };
  for (const auto& [text, address] : cases) {
    CAPTURE(text);
    const auto read = ParseAddress(text);
    REQUIRE(read.ok());
    CHECK(*read == address);
    CHECK(ToString(address) == text);
  }
}

TEST_CASE("what is no address is refused and quoted", "[options]") {
  for (const std::string text :
       {"",
        ":",
        ":8001",
        "localhost",
        "localhost:",
        "nowhere:notaport",
        "localhost:-1",
        "localhost:+1",
        "localhost: 1",
        "localhost:65536",
        "localhost:99999999999",
        "::1:8001",
        "[::1]",
        "[]:1",
        "[host]:1",
        "[::1:8001",
        "two words:1",
        "http://host:1",
        "unix:",
        "unix:/",
        "unix:relative",
        "unix:/folder/",
        "unix:/a\nb",
        "unix:/a-path-of-more-than-107-bytes-which-the-kernel-has-no-room-for-in-the-address-of-a-socket-and-would-cut-off"}) {
    CAPTURE(text);
    CHECK_FALSE(ParseAddress(text).ok());
  }
  CHECK(ParseAddress("a\n:x").status().message() == "must be host:port or [IPv6]:port with a port from 0 to 65535, not \"a\\n:x\"");
}

TEST_CASE("device selections are read", "[options]") {
  using Kind = DeviceSelection::Kind;
  const std::vector<std::pair<std::string, DeviceSelection>> cases = {
      {"auto", {Kind::kAuto, {}}},    {"cpu", {Kind::kCpu, {}}},           {"cuda", {Kind::kCuda, {}}},
      {"cuda:0", {Kind::kCuda, {0}}}, {"cuda:0,1", {Kind::kCuda, {0, 1}}}, {"cuda:12,3", {Kind::kCuda, {12, 3}}},
  };
  for (const auto& [text, selection] : cases) {
    CAPTURE(text);
    const auto read = ParseDeviceSelection(text);
    REQUIRE(read.ok());
    CHECK(*read == selection);
    CHECK(ToString(selection) == text);
  }
  for (const std::string text : {"", "abacus", "CPU", "cpu:0", "cuda:", "cuda:a", "cuda:-1", "cuda:0,", "cuda:,0", "cuda:0,0",
                                 "cuda:0, 1", "cuda 0", "cuda:99999999999"}) {
    CAPTURE(text);
    CHECK_FALSE(ParseDeviceSelection(text).ok());
  }
}

TEST_CASE("the defaults are valid once there is a repository", "[options]") {
  CHECK(Validate(Valid()).empty());
  PlanOptions plan;
  plan.models = Valid().models;
  CHECK(Validate(plan).empty());
  CHECK(Validate(HealthOptions{}).empty());
  CHECK(Validate(ServeOptions{}) == std::vector<std::string>{"--model-repository is required: the folder that holds the models"});
}

TEST_CASE("a watchdog that every slow moment would wake is a fault, as are thresholds that mean nothing", "[options]") {
  ServeOptions options = Valid();
  options.settle_seconds = -1;
  options.watchdog = {4.9, 0};
  options.readiness = {1, -1, 3'600'001};
  CHECK(Validate(options) == std::vector<std::string>{
                                 "--settle-seconds must be from 0 to 3600 s, not -1",
                                 "--watchdog-multiple must be 0, or from 5 to 1000000, not 4.9",
                                 "--watchdog-least-seconds must be from 1 to 86400 s, not 0",
                                 "--ready-min-memory-headroom must be from 0 to below 1, not 1",
                                 "--ready-max-queue-delay-ms must be from 0 to 3600000 ms, not -1",
                                 "--ready-max-latency-ms must be from 0 to 3600000 ms, not 3600001",
                             });
  options = Valid();
  options.watchdog.multiple = 0;  // off
  CHECK(Validate(options).empty());
  options.watchdog.multiple = std::nan("");
  options.readiness.min_memory_headroom = std::nan("");
  CHECK(Validate(options).size() == 2);
}

TEST_CASE("every fault is listed at once", "[options]") {
  ServeOptions options;
  options.models.memory_fraction = 1.5;
  options.models.memory_limit = Bytes{0};
  options.models.intra_op_threads = 0;
  options.models.max_intra_op_threads = -1;
  options.workers = -1;
  options.http_address = options.grpc_address;
  options.limits = {GiB(3), 0, 0, 0, 0, 0};
  options.drain_seconds = -1;
  options.host_memory_limit = KiB(1);
  options.breaker = {"X-Caller", 0, 0, 0, 0, 0};
  CHECK(Validate(options) == std::vector<std::string>{
                                 "--model-repository is required: the folder that holds the models",
                                 "--memory-fraction must be above 0 and at most 1, not 1.5",
                                 "--memory-limit must be above 0 bytes, not 0",
                                 "--intra-op-threads must be from 1 to 1024, not 0",
                                 "--max-intra-op-threads must be from 0 to 1024, not -1",
                                 "--workers must be from 1 to 1024, not -1",
                                 "--http-address must differ from --grpc-address, both are 0.0.0.0:8001",
                                 "--max-message-size must be from 1024 to 2147483647 bytes, not 3221225472",
                                 "--max-inputs must be from 1 to 1000000, not 0",
                                 "--max-rank must be from 1 to 64, not 0",
                                 "--max-request-rows must be from 1 to 1000000000, not 0",
                                 "--max-name-length must be from 1 to 1000000 bytes, not 0",
                                 "--max-stream-calls must be from 1 to 65536, not 0",
                                 "--host-memory-limit must be at least 1.00 MiB, not 1024 bytes",
                                 "--caller-metadata-key must be of lower-case letters, digits, '-', '_' and '.', not begin with "
                                 "grpc- and not end with -bin, not be \"X-Caller\"",
                                 "--breaker-share must be above 0 and at most 1, not 0",
                                 "--breaker-requests must be from 1 to 1000000, not 0",
                                 "--breaker-window-seconds must be from 1 to 3600 s, not 0",
                                 "--breaker-cool-down-seconds must be from 1 to 3600 s, not 0",
                                 "--breaker-callers must be from 1 to 1000000, not 0",
                                 "--drain-seconds must be from 0 to 86400 s, not -1",
                             });
}

TEST_CASE("bounds are where they are said to be", "[options]") {
  for (const auto& [fraction, valid] : std::vector<std::pair<double, bool>>{{0, false},
                                                                            {-0.1, false},
                                                                            {0.0001, true},
                                                                            {1, true},
                                                                            {1.0001, false},
                                                                            {std::numeric_limits<double>::quiet_NaN(), false},
                                                                            {std::numeric_limits<double>::infinity(), false}}) {
    CAPTURE(fraction);
    ServeOptions options = Valid();
    options.models.memory_fraction = fraction;
    CHECK(Validate(options).empty() == valid);
  }
  ServeOptions free_ports = Valid();
  free_ports.grpc_address = free_ports.http_address = {"127.0.0.1", 0};
  CHECK(Validate(free_ports).empty());
  HealthOptions health;
  CHECK(Validate(health).empty());
  health.address = {"localhost", 0};
  CHECK_FALSE(Validate(health).empty());
  health.address = {"localhost", 1};
  health.timeout_seconds = 0;
  CHECK_FALSE(Validate(health).empty());
}

TEST_CASE("limits on the wire have bounds, and each fault names its flag", "[options]") {
  const std::vector<std::pair<const char*, void (*)(WireLimits&)>> cases = {
      {"--max-metadata-size", [](WireLimits& wire) { wire.max_metadata_size = Bytes{100}; }},
      {"--max-streams", [](WireLimits& wire) { wire.max_streams = 0; }},
      {"--max-connections", [](WireLimits& wire) { wire.max_connections = 0; }},
      {"--handshake-seconds", [](WireLimits& wire) { wire.handshake_seconds = 0; }},
      {"--keepalive-seconds", [](WireLimits& wire) { wire.keepalive_seconds = 0; }},
      {"--keepalive-timeout-seconds", [](WireLimits& wire) { wire.keepalive_timeout_seconds = -1; }},
      {"--min-ping-seconds", [](WireLimits& wire) { wire.min_ping_seconds = 0; }},
      {"--max-ping-strikes", [](WireLimits& wire) { wire.max_ping_strikes = 0; }},
      {"--connection-age-seconds", [](WireLimits& wire) { wire.connection_age_seconds = -1; }},
      {"--connection-grace-seconds", [](WireLimits& wire) { wire.connection_grace_seconds = 100'000; }},
      {"--connection-idle-seconds", [](WireLimits& wire) { wire.connection_idle_seconds = 100'000; }},
      {"--max-abandoned-per-second", [](WireLimits& wire) { wire.max_abandoned_per_second = -1; }},
      {"--stream-window", [](WireLimits& wire) { wire.stream_window = Bytes{1}; }},
      {"--max-http-connections", [](WireLimits& wire) { wire.max_http_connections = 1; }},
  };
  CHECK(Validate(Valid()).empty());
  for (const auto& [flag, spoil] : cases) {
    CAPTURE(flag);
    ServeOptions options = Valid();
    spoil(options.wire);
    const std::vector<std::string> faults = Validate(options);
    REQUIRE(faults.size() == 1);
    CHECK(faults[0].find(std::string(flag) + " must be") == 0);
  }
}

TEST_CASE("what security needs together is asked for together", "[options]") {
  const auto faults = [](void (*spoil)(ServeOptions&)) {
    ServeOptions options = Valid();
    spoil(options);
    return Validate(options);
  };
  using Faults = std::vector<std::string>;
  CHECK(faults([](ServeOptions& o) { o.tls.key = "k"; }) == Faults{"--tls-key needs --tls-certificate"});
  CHECK(faults([](ServeOptions& o) { o.tls.certificate = "c"; }) == Faults{"--tls-certificate needs --tls-key"});
  CHECK(faults([](ServeOptions& o) { o.tls.client_ca = "a"; }) == Faults{"--tls-client-ca needs --tls-certificate"});
  CHECK(faults([](ServeOptions& o) {
          o.management_address = {"127.0.0.1", 1};
        }) == Faults{"--management-address needs --model-control on"});
  CHECK(faults([](ServeOptions& o) { o.management_token_file = "t"; }) ==
        Faults{"--management-token-file needs --management-address"});
  CHECK(faults([](ServeOptions& o) { o.http_address = {"unix:/tmp/http", 0}; }) == Faults{"--http-address must be host:port"});
  CHECK(faults([](ServeOptions& o) {
          o.model_control = true;
          o.management_address = o.http_address;
        }) == Faults{"--management-address must differ from --http-address, both are 0.0.0.0:8002"});
  CHECK(faults([](ServeOptions& o) {
          o.model_control = true;
          o.grpc_address = {"unix:/tmp/both", 0};
          o.management_address = o.grpc_address;
        }) == Faults{"--management-address must differ from --grpc-address, both are unix:/tmp/both"});
}

}  // namespace
}  // namespace headroom
