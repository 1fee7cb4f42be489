#include "server/command_line.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace headroom {
namespace {

ParsedCommand Parse(const std::string& line, const std::vector<ExtraOption>& extra = {}) {
  const std::vector<std::string> words = absl::StrSplit("headroom " + line, ' ', absl::SkipEmpty());
  std::vector<const char*> argv(words.size());
  std::transform(words.begin(), words.end(), argv.begin(), [](const std::string& word) { return word.c_str(); });
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data(), extra);
}

ExitRequest ParseExit(const std::string& line) {
  const ParsedCommand parsed = Parse(line);
  REQUIRE(std::holds_alternative<ExitRequest>(parsed));
  return std::get<ExitRequest>(parsed);
}

ServeOptions ParseServe(const std::string& line) {
  const ParsedCommand parsed = Parse("serve --model-repository models " + line);
  if (const auto* exit = std::get_if<ExitRequest>(&parsed)) FAIL(exit->err);
  return std::get<ServeOptions>(parsed);
}

TEST_CASE("serve has defaults for all but the repository", "[command_line]") {
  const ServeOptions options = ParseServe("");
  CHECK(options.models.model_repository == "models");
  CHECK(options.models.device == DeviceSelection{});
  CHECK(options.models.memory_fraction == 0.8);
  CHECK_FALSE(options.models.memory_limit);
  CHECK(options.models.intra_op_threads == 1);
  CHECK(options.models.max_intra_op_threads == 0);
  CHECK(options.models.calibration_cache.empty());
  CHECK(options.grpc_address == Address{"0.0.0.0", 8001});
  CHECK(options.http_address == Address{"0.0.0.0", 8002});
  CHECK_FALSE(options.workers);
  CHECK_FALSE(options.model_control);
  CHECK(options.log_format == LogFormat::kText);
  CHECK(options.log_level == LogLevel::kInfo);
  CHECK(options.ready_file.empty());
  CHECK(options.drain_seconds == 30);
  CHECK(options.limits.max_message_size == MiB(64));
}

TEST_CASE("serve takes every option", "[command_line]") {
  const ServeOptions options = ParseServe(
      "--device cuda:0,1 --memory-fraction 0.5 --memory-limit 6MiB --intra-op-threads 2 --max-intra-op-threads 4 "
      "--calibration-cache /cache "
      "--grpc-address 127.0.0.1:0 --http-address=[::1]:9 --workers 3 --model-control on --log-format json "
      "--log-level warning --ready-file /run/ready.json --drain-seconds 0 --max-message-size 1GiB --max-inputs 2 "
      "--max-rank 3 --max-request-rows 4 --max-name-length 5 --max-stream-calls 10 --host-memory-limit 2GiB --caller-metadata-key "
      "x-caller "
      "--breaker-share 0.75 --breaker-requests 6 --breaker-window-seconds 7 --breaker-cool-down-seconds 8 --breaker-callers 9");
  CHECK_FALSE(options.management_address);
  CHECK(options.host_memory_limit == GiB(2));
  CHECK(options.breaker.caller_key == "x-caller");
  CHECK(options.breaker.abnormal_share == 0.75);
  CHECK(options.breaker.least_requests == 6);
  CHECK(options.breaker.window_seconds == 7);
  CHECK(options.breaker.cool_down_seconds == 8);
  CHECK(options.breaker.most_callers == 9);
  CHECK(options.models.device == DeviceSelection{DeviceSelection::Kind::kCuda, {0, 1}});
  CHECK(options.models.memory_fraction == 0.5);
  CHECK(options.models.memory_limit == MiB(6));
  CHECK(options.models.intra_op_threads == 2);
  CHECK(options.models.max_intra_op_threads == 4);
  CHECK(options.models.calibration_cache == "/cache");
  CHECK(options.grpc_address == Address{"127.0.0.1", 0});
  CHECK(options.http_address == Address{"::1", 9});
  CHECK(options.workers == 3);
  CHECK(options.model_control);
  CHECK(options.log_format == LogFormat::kJson);
  CHECK(options.log_level == LogLevel::kWarning);
  CHECK(options.ready_file == "/run/ready.json");
  CHECK(options.drain_seconds == 0);
  CHECK(options.limits.max_message_size == GiB(1));
  CHECK(options.limits.max_inputs == 2);
  CHECK(options.limits.max_rank == 3);
  CHECK(options.limits.max_request_rows == 4);
  CHECK(options.limits.max_name_length == 5);
  CHECK(options.limits.max_stream_calls == 10);
}

TEST_CASE("serve takes what is about its readiness and its end, and a manifest", "[command_line]") {
  const ServeOptions options = ParseServe(
      "--settle-seconds 7 --watchdog-multiple 12.5 --watchdog-least-seconds 9 --ready-min-memory-headroom 0.1 "
      "--ready-max-queue-delay-ms 500 --ready-max-latency-ms 600 --model-manifest /etc/SHA256SUMS");
  CHECK(options.settle_seconds == 7);
  CHECK(options.watchdog.multiple == 12.5);
  CHECK(options.watchdog.least_seconds == 9);
  CHECK(options.readiness.min_memory_headroom == 0.1);
  CHECK(options.readiness.max_queue_delay_ms == 500);
  CHECK(options.readiness.max_latency_ms == 600);
  CHECK(options.models.model_manifest == "/etc/SHA256SUMS");
}

TEST_CASE("serve takes the limits of the wire, and what protects it", "[command_line]") {
  const ServeOptions options = ParseServe(
      "--max-metadata-size 8KiB --max-streams 1 --max-connections 2 --handshake-seconds 3 --keepalive-seconds 4 "
      "--keepalive-timeout-seconds 5 --min-ping-seconds 6 --max-ping-strikes 7 --connection-age-seconds 8 "
      "--connection-grace-seconds 9 --connection-idle-seconds 10 --max-abandoned-per-second 12 --stream-window 1MiB --compression "
      "off --max-http-connections 11 "
      "--tls-certificate crt --tls-key key --tls-client-ca ca --token-file tokens --model-control on "
      "--management-address unix:/run/m.sock --management-token-file more");
  CHECK(options.wire.max_metadata_size == KiB(8));
  CHECK(options.wire.max_streams == 1);
  CHECK(options.wire.max_connections == 2);
  CHECK(options.wire.handshake_seconds == 3);
  CHECK(options.wire.keepalive_seconds == 4);
  CHECK(options.wire.keepalive_timeout_seconds == 5);
  CHECK(options.wire.min_ping_seconds == 6);
  CHECK(options.wire.max_ping_strikes == 7);
  CHECK(options.wire.connection_age_seconds == 8);
  CHECK(options.wire.connection_grace_seconds == 9);
  CHECK(options.wire.connection_idle_seconds == 10);
  CHECK(options.wire.max_abandoned_per_second == 12);
  CHECK(options.wire.stream_window == MiB(1));
  CHECK_FALSE(options.wire.compression);
  CHECK(options.wire.max_http_connections == 11);
  CHECK(options.tls.certificate == "crt");
  CHECK(options.tls.key == "key");
  CHECK(options.tls.client_ca == "ca");
  CHECK(options.token_file == "tokens");
  CHECK(options.management_address == Address{"unix:/run/m.sock", 0});
  CHECK(options.management_token_file == "more");
}

TEST_CASE("plan and health take their options", "[command_line]") {
  const ParsedCommand plan = Parse("plan --model-repository m --device cpu --memory-limit 1GiB --json");
  REQUIRE(std::holds_alternative<PlanOptions>(plan));
  CHECK(std::get<PlanOptions>(plan).json);
  CHECK(std::get<PlanOptions>(plan).models.device.kind == DeviceSelection::Kind::kCpu);
  CHECK(std::get<PlanOptions>(plan).models.memory_limit == GiB(1));
  CHECK(std::get<PlanOptions>(plan).cards.empty());

  const ParsedCommand cards =
      Parse("plan --model-repository m --card t4,2GiB:8.6 --card h100 --card-allowance 1GiB --traffic t.csv --traffic-mix a=1,b=2");
  REQUIRE(std::holds_alternative<PlanOptions>(cards));
  CHECK(std::get<PlanOptions>(cards).cards.size() == 3);
  CHECK(std::get<PlanOptions>(cards).cards[1] == PlanCard{"2GiB:8.6", GiB(2), "8.6"});
  CHECK(std::get<PlanOptions>(cards).cards[2].name == "h100");
  CHECK(std::get<PlanOptions>(cards).card_allowance == GiB(1));
  CHECK(std::get<PlanOptions>(cards).traffic == "t.csv");
  CHECK(std::get<PlanOptions>(cards).traffic_mix == ColumnWeights{{"a", 1}, {"b", 2}});
  CHECK_FALSE(std::get<PlanOptions>(cards).buckets);
  CHECK(std::get<PlanOptions>(cards).bucket_multiple == 8);

  const ParsedCommand tuned = Parse("plan --model-repository m --traffic t.csv --buckets 7 --bucket-multiple 1");
  REQUIRE(std::holds_alternative<PlanOptions>(tuned));
  CHECK(std::get<PlanOptions>(tuned).buckets == 7);
  CHECK(std::get<PlanOptions>(tuned).bucket_multiple == 1);

  const ParsedCommand health = Parse("health --address localhost:1 --timeout 0.5");
  REQUIRE(std::holds_alternative<HealthOptions>(health));
  CHECK(std::get<HealthOptions>(health).address == Address{"localhost", 1});
  CHECK(std::get<HealthOptions>(health).timeout_seconds == 0.5);
  CHECK_FALSE(std::get<HealthOptions>(health).tls);
  const ParsedCommand with_tls = Parse("health --tls --tls-ca a --tls-certificate c --tls-key k --tls-server-name n");
  REQUIRE(std::holds_alternative<HealthOptions>(with_tls));
  CHECK(std::get<HealthOptions>(with_tls).tls);
  CHECK(std::get<HealthOptions>(with_tls).tls_ca == "a");
  CHECK(std::get<HealthOptions>(with_tls).tls_certificate == "c");
  CHECK(std::get<HealthOptions>(with_tls).tls_key == "k");
  CHECK(std::get<HealthOptions>(with_tls).tls_server_name == "n");
}

TEST_CASE("what a plan cannot have together is named", "[command_line]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--card t4 --device cpu", "--device cpu cannot be had with --card"},
      {"--card-allowance 2TiB", "--card-allowance must be from 0 to 1TiB, not 2199023255552"},
      {"--traffic-mix a=1", "--traffic-mix is for a table of quantiles that --traffic names"},
      {"--buckets 4", "--buckets is for a traffic that --traffic names"},
      {"--traffic t --buckets 0", "--buckets must be from 1 to 64, not 0"},
      {"--traffic t --bucket-multiple 0", "--bucket-multiple must be from 1 to 4096, not 0"},
      {"--traffic t --traffic-mix a", "--traffic-mix must be COLUMN=WEIGHT,... with weights above 0, not \"a\""},
      {"--card t5", "--card must be t4, l4, a10g, a100-80gb, h100, h200 or a size such as 16GiB or 16GiB:8.0, not \"t5\""},
  };
  for (const auto& [arguments, fault] : cases) {
    CAPTURE(arguments);
    const ExitRequest exit = ParseExit("plan --model-repository models " + arguments);
    CHECK(exit.code == 2);
    CHECK(exit.err == absl::StrCat("headroom plan: ", fault, "\n'headroom plan --help' lists what there is.\n"));
  }
}

TEST_CASE("a wrong option ends in code 2 and is named in the first line", "[command_line]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--no-such-flag", "unknown option --no-such-flag"},
      {"--no-such-flag=1", "unknown option --no-such-flag=1"},
      {"--fault oom_every=2", "unknown option --fault"},
      {"-x", "unknown option -x"},
      {"--json", "unknown option --json"},
      {"surplus", "unknown argument surplus"},
      {"plan", "unknown argument plan"},
      {"--memory-fraction 1.5", "--memory-fraction must be above 0 and at most 1, not 1.5"},
      {"--memory-fraction 0", "--memory-fraction must be above 0 and at most 1, not 0"},
      {"--memory-fraction nan", "--memory-fraction must be above 0 and at most 1, not nan"},
      {"--memory-fraction zero", "--memory-fraction must be a number, not \"zero\""},
      {"--memory-limit banana", "--memory-limit must be a size such as 512MiB or 2GiB, not \"banana\""},
      {"--memory-limit 0", "--memory-limit must be above 0 bytes, not 0"},
      {"--workers -1", "--workers must be from 1 to 1024, not -1"},
      {"--workers 2.5", "--workers must be a whole number, not \"2.5\""},
      {"--workers 99999999999", "--workers must be a whole number, not \"99999999999\""},
      {"--workers 1 --workers 2", "--workers: At Most 1 required but received 2"},
      {"--workers", "--workers: 1 required N missing"},
      {"--device abacus", "--device must be auto, cpu, cuda, or cuda:0,1 (each index once), not \"abacus\""},
      {"--grpc-address nowhere:notaport",
       "--grpc-address must be host:port or [IPv6]:port with a port from 0 to 65535, not \"nowhere:notaport\""},
      {"--log-format poem", "--log-format must be text or json, not \"poem\""},
      {"--log-level loud", "--log-level must be debug or info or warning or error, not \"loud\""},
      {"--model-control yes", "--model-control must be on or off, not \"yes\""},
      {"--max-message-size 4GiB", "--max-message-size must be from 1024 to 2147483647 bytes, not 4294967296"},
      {"--a\nb", "unknown option --a?b"},
  };
  for (const auto& [arguments, fault] : cases) {
    CAPTURE(arguments);
    const ExitRequest exit = ParseExit("serve --model-repository models " + arguments);
    CHECK(exit.code == 2);
    CHECK(exit.out.empty());
    CHECK(exit.err == absl::StrCat("headroom serve: ", fault, "\n'headroom serve --help' lists what there is.\n"));
  }
}

TEST_CASE("all faults are told in one line", "[command_line]") {
  const ExitRequest exit = ParseExit("serve --device abacus --bogus --workers 0");
  CHECK(exit.err ==
        "headroom serve: --device must be auto, cpu, cuda, or cuda:0,1 (each index once), not \"abacus\"; "
        "unknown option --bogus; --model-repository is required: the folder that holds the models; "
        "--workers must be from 1 to 1024, not 0\n"
        "'headroom serve --help' lists what there is.\n");
}

TEST_CASE("a missing or unknown verb ends in code 2", "[command_line]") {
  const ExitRequest nothing = ParseExit("");
  CHECK(nothing.code == 2);
  CHECK(nothing.out.empty());
  for (const char* verb : {"serve", "plan", "health"}) CHECK(absl::StrContains(nothing.err, verb));

  CHECK(ParseExit("bake").err == "headroom: unknown command bake\n'headroom --help' lists what there is.\n");
  CHECK(ParseExit("--bogus").err == "headroom: unknown option --bogus\n'headroom --help' lists what there is.\n");
  CHECK(ParseExit("plan").code == 2);
  CHECK(ParseExit("health --address localhost:0").code == 2);
}

TEST_CASE("help and version go to standard output with code 0", "[command_line]") {
  const ExitRequest version = ParseExit("--version");
  CHECK(version.code == 0);
  CHECK(absl::StartsWith(version.out, "headroom "));
  CHECK(version.err.empty());

  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"--help", {"serve", "plan", "health", "--version"}},
      {"serve --help",
       {"--model-repository DIR",
        "--device DEVICE [auto]",
        "--memory-fraction FRACTION [0.8]",
        "--memory-limit SIZE",
        "--intra-op-threads N [1]",
        "--calibration-cache DIR",
        "--grpc-address HOST:PORT [0.0.0.0:8001]",
        "--http-address HOST:PORT [0.0.0.0:8002]",
        "--workers N",
        "--model-control on|off [off]",
        "--model-control",
        "--ready-file PATH",
        "--drain-seconds SECONDS [30]",
        "--log-format text|json [text]",
        "--log-level LEVEL [info]",
        "--max-message-size SIZE [64MiB]",
        "--max-inputs N [64]",
        "--max-rank N [16]",
        "--max-request-rows N [4096]",
        "--max-name-length N [128]",
        "--max-stream-calls N [64]"}},
      {"plan --help", {"--model-repository", "--json"}},
      {"health --help", {"--address HOST:PORT [127.0.0.1:8001]", "--timeout SECONDS [5]"}},
      {"serve --help --workers none", {"--workers N"}},
  };
  for (const auto& [arguments, words] : cases) {
    CAPTURE(arguments);
    const ExitRequest help = ParseExit(arguments);
    CHECK(help.code == 0);
    CHECK(help.err.empty());
    CHECK_FALSE(absl::StrContains(help.out, "--fault"));
    for (const std::string& word : words) {
      CAPTURE(word);
      CHECK(absl::StrContains(help.out, word));
    }
  }
}

TEST_CASE("an extra option may be repeated and may refuse its value", "[command_line]") {
  std::vector<std::string> seen;
  const ExtraOption fault{"--fault", "NAME[=VALUE]", "Injects a fault.", [&](const std::string& value) {
                            seen.push_back(value);
                            return value == "bad" ? absl::InvalidArgumentError("knows no bad") : absl::OkStatus();
                          }};
  const std::string serve = "serve --model-repository models --device cpu ";
  CHECK(std::holds_alternative<ServeOptions>(Parse(serve + "--fault delay_ms=300 --workers 1 --fault oom_over_rows=8", {fault})));
  CHECK(seen == std::vector<std::string>{"delay_ms=300", "oom_over_rows=8"});

  const ParsedCommand refused = Parse(serve + "--fault bad --workers 0", {fault});
  REQUIRE(std::holds_alternative<ExitRequest>(refused));
  CHECK(absl::StartsWith(std::get<ExitRequest>(refused).err,
                         "headroom serve: --fault knows no bad; --workers must be from 1 to 1024, not 0\n"));
  CHECK(absl::StrContains(std::get<ExitRequest>(Parse("serve --help", {fault})).out, "--fault NAME[=VALUE]"));
  CHECK(std::get<ExitRequest>(Parse("plan --model-repository m --fault x", {fault})).code == 2);
}

}  // namespace
}  // namespace headroom
