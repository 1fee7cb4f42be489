#include "server/command_line.h"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

namespace headroom {
namespace {

using Faults = std::vector<std::string>;

constexpr const char* kProgram = "headroom";
constexpr std::size_t kFlagColumns = 40;
constexpr std::size_t kHelpColumns = 78;

// How a value is read, and how a default is shown in the help: an overload pair for each type of field.

absl::Status MustBe(const char* what, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat("must be ", what, ", not \"", absl::CEscape(text), "\""));
}

absl::Status Read(const std::string& text, std::string& value) {
  value = text;
  return absl::OkStatus();
}
std::string Show(const std::string& value) { return value; }

template <class Whole>
absl::Status ReadWhole(const std::string& text, Whole& value) {
  Whole read = 0;  // the parser writes even where it fails, and the default must stay
  if (!absl::SimpleAtoi(text, &read)) return MustBe("a whole number", text);
  value = read;
  return absl::OkStatus();
}
absl::Status Read(const std::string& text, int& value) { return ReadWhole(text, value); }
absl::Status Read(const std::string& text, std::int64_t& value) { return ReadWhole(text, value); }
absl::Status Read(const std::string& text, double& value) {
  double read = 0;
  if (!absl::SimpleAtod(text, &read)) return MustBe("a number", text);
  value = read;
  return absl::OkStatus();
}
template <class Number>
std::string Show(Number value) {
  return absl::StrCat(value);
}

absl::Status Read(const std::string& text, Bytes& value) {
  const absl::StatusOr<Bytes> bytes = ParseBytes(text);
  if (!bytes.ok()) return MustBe("a size such as 512MiB or 2GiB", text);
  value = *bytes;
  return absl::OkStatus();
}
std::string Show(Bytes value) {
  if (value.count > 0 && value.count % MiB(1).count == 0) return absl::StrCat(value.count / MiB(1).count, "MiB");
  if (value.count > 0 && value.count % KiB(1).count == 0) return absl::StrCat(value.count / KiB(1).count, "KiB");
  return absl::StrCat(value.count);
}

absl::Status Read(const std::string& text, Address& value) {
  const absl::StatusOr<Address> address = ParseAddress(text);
  if (address.ok()) value = *address;
  return address.status();
}
std::string Show(const Address& value) { return ToString(value); }

absl::Status Read(const std::string& text, DeviceSelection& value) {
  const absl::StatusOr<DeviceSelection> selection = ParseDeviceSelection(text);
  if (selection.ok()) value = *selection;
  return selection.status();
}
std::string Show(const DeviceSelection& value) { return ToString(value); }

// A type whose values have names.
template <class T>
using Words = std::vector<std::pair<const char*, T>>;
template <class T>
absl::Status ReadWord(const Words<T>& words, const std::string& text, T& value) {
  for (const auto& [word, meaning] : words) {
    if (text == word) {
      value = meaning;
      return absl::OkStatus();
    }
  }
  const auto name = [](std::string* out, const auto& word) { out->append(word.first); };
  return MustBe(absl::StrJoin(words, " or ", name).c_str(), text);
}
template <class T>
std::string ShowWord(const Words<T>& words, T value) {
  const auto found = std::find_if(words.begin(), words.end(), [&](const auto& word) { return word.second == value; });
  return found == words.end() ? "" : found->first;
}

const Words<LogFormat> kLogFormats = {{"text", LogFormat::kText}, {"json", LogFormat::kJson}};
const Words<LogLevel> kLogLevels = {
    {"debug", LogLevel::kDebug}, {"info", LogLevel::kInfo}, {"warning", LogLevel::kWarning}, {"error", LogLevel::kError}};
const Words<bool> kSwitch = {{"on", true}, {"off", false}};

absl::Status Read(const std::string& text, ColumnWeights& value) {
  absl::StatusOr<ColumnWeights> weights = ParseColumnWeights(text);
  if (!weights.ok()) return weights.status();
  value = *std::move(weights);
  return absl::OkStatus();
}
std::string Show(const ColumnWeights&) { return ""; }

absl::Status Read(const std::string& text, LogFormat& value) { return ReadWord(kLogFormats, text, value); }
std::string Show(LogFormat value) { return ShowWord(kLogFormats, value); }
absl::Status Read(const std::string& text, LogLevel& value) { return ReadWord(kLogLevels, text, value); }
std::string Show(LogLevel value) { return ShowWord(kLogLevels, value); }
absl::Status Read(const std::string& text, bool& value) { return ReadWord(kSwitch, text, value); }
std::string Show(bool value) { return ShowWord(kSwitch, value); }

template <class T>
absl::Status Read(const std::string& text, std::optional<T>& value) {
  T read{};
  absl::Status status = Read(text, read);
  if (status.ok()) value = read;
  return status;
}
template <class T>
std::string Show(const std::optional<T>& value) {
  return value ? Show(*value) : "";
}

// CLI11 indents the lines of a description but does not break them.
std::string Wrapped(const std::string& text) {
  std::string wrapped;
  std::size_t column = 0;
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  for (const std::string& word : words) {
    const bool fits = column + 1 + word.size() <= kHelpColumns;
    if (column > 0) wrapped += fits ? ' ' : '\n';
    column = (fits && column > 0 ? column + 1 : 0) + word.size();
    wrapped += word;
  }
  return wrapped;
}

// Adds options to one verb. A value that cannot be read becomes a fault, so that all of them are told at once.
class OptionTable {
 public:
  OptionTable(CLI::App& verb, Faults& faults) : verb_(verb), faults_(faults) {}

  // `value` holds the default, which the help shows.
  template <class T>
  void Add(const std::string& flag, const std::string& placeholder, T& value, const std::string& help) {
    const std::string shown = Show(value);
    AddReader(flag, help, [&value](const std::string& text) { return Read(text, value); })
        ->type_name(placeholder)
        ->option_text(shown.empty() ? placeholder : absl::StrCat(placeholder, " [", shown, "]"));
  }

  void AddSwitch(const std::string& flag, bool& value, const std::string& help) { verb_.add_flag(flag, value, Wrapped(help)); }

  void AddExtra(const ExtraOption& extra) {
    const auto read_all = [flag = extra.flag, read = extra.read, &faults = faults_](const std::vector<std::string>& all) {
      for (const std::string& text : all) Note(flag, read(text), faults);
    };
    verb_.add_option_function<std::vector<std::string>>(extra.flag, read_all, Wrapped(extra.help))
        ->option_text(extra.placeholder)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }

 private:
  static void Note(const std::string& flag, const absl::Status& status, Faults& faults) {
    if (!status.ok()) faults.push_back(absl::StrCat(flag, " ", status.message()));
  }

  template <class Reader>
  CLI::Option* AddReader(const std::string& flag, const std::string& help, Reader read) {
    return verb_.add_option_function<std::string>(
        flag, [flag, read, &faults = faults_](const std::string& text) { Note(flag, read(text), faults); }, Wrapped(help));
  }

  CLI::App& verb_;
  Faults& faults_;
};

void AddModelOptions(OptionTable& table, ModelOptions& models) {
  table.Add("--model-repository", "DIR", models.model_repository,
            "Required: the folder that holds the models, each as DIR/<model>/<version>/model.pt.");
  table.Add("--device", "DEVICE", models.device,
            "auto (every CUDA device, or the CPU where there is none), cpu, cuda (every one), or cuda:0,1.");
  table.Add("--memory-fraction", "FRACTION", models.memory_fraction,
            "The share of a device's free memory that batches may hold together; above 0, at most 1.");
  table.Add("--memory-limit", "SIZE", models.memory_limit,
            "What the process may use of each device, as in 512MiB or 6GiB. Default: all of a GPU; on the CPU the "
            "container's limit less what is used already.");
  table.Add("--intra-op-threads", "N", models.intra_op_threads,
            "Threads inside one run on the CPU while others run or wait: what every run has, and what is calibrated with.");
  table.Add("--max-intra-op-threads", "N", models.max_intra_op_threads,
            "Threads that one run on the CPU may have while processors are idle. 0: one a processor, at most 8.");
  table.Add("--calibration-cache", "DIR", models.calibration_cache,
            "Where measurements are kept for a fast restart. Default: beside the model.");
  table.Add("--model-manifest", "FILE", models.model_manifest,
            "SHA-256 digests of the repository's files, as sha256sum prints them when it is called there. Files that it does not "
            "list, or lists otherwise, are not loaded. Default: none, and every file is.");
}

void AddRequestLimits(OptionTable& table, RequestLimits& limits) {
  table.Add("--max-message-size", "SIZE", limits.max_message_size, "The largest gRPC message, either way, in bytes.");
  table.Add("--max-inputs", "N", limits.max_inputs, "Input tensors of a request, at most.");
  table.Add("--max-rank", "N", limits.max_rank, "Dimensions of a tensor, at most.");
  table.Add("--max-request-rows", "N", limits.max_request_rows, "Rows of a request, at most.");
  table.Add("--max-name-length", "N", limits.max_name_length,
            "Bytes of a model's or an input's name, or of a version, in a request, at most.");
  table.Add(
      "--max-stream-calls", "N", limits.max_stream_calls,
      "Calls of one ModelStreamInfer stream that are unanswered, or whose answers the client has not taken, at most; its next "
      "request is read when there are fewer.");
}

void AddBreaker(OptionTable& table, BreakerOptions& breaker) {
  table.Add("--caller-metadata-key", "KEY", breaker.caller_key,
            "The request metadata that names a caller. A caller whose recent requests were mostly invalid or too long is refused "
            "for a while. Default: none, and nobody is.");
  table.Add("--breaker-share", "SHARE", breaker.abnormal_share,
            "What share of a caller's recent requests must have been invalid or too long; above 0, at most 1.");
  table.Add("--breaker-requests", "N", breaker.least_requests, "How many recent requests it takes to judge a caller.");
  table.Add("--breaker-window-seconds", "SECONDS", breaker.window_seconds, "How long a request is recent, in seconds.");
  table.Add("--breaker-cool-down-seconds", "SECONDS", breaker.cool_down_seconds,
            "How long a caller is refused before one request is tried, in seconds.");
  table.Add("--breaker-callers", "N", breaker.most_callers, "How many callers are remembered, the most recent ones.");
}

void AddQueue(OptionTable& table, QueueOptions& queue) {
  table.Add("--max-queue-rows", "N", queue.max_rows,
            "Waiting rows of all models together, beyond which requests are refused; 0: no bound. Each model has its own bound, "
            "max_queue_size in its configuration.");
  table.Add("--max-queue-bytes", "SIZE", queue.max_bytes,
            "The same for the bytes of waiting requests; 0: none but --host-memory-limit.");
  table.Add("--max-wait-seconds", "SECONDS", queue.max_wait_seconds,
            "How long a request may wait whose client gives no deadline and whose model no timeout, in seconds; it is refused at "
            "once where it is foreseen to wait longer.");
}

void AddLifecycle(OptionTable& table, ServeOptions& serve) {
  table.Add("--settle-seconds", "SECONDS", serve.settle_seconds,
            "How long after SIGTERM late calls are still served while the server says that it is not ready, in seconds.");
  table.Add("--watchdog-multiple", "N", serve.watchdog.multiple,
            "A run that takes more than so many times what was measured for it hangs: the server ends with exit code 3. 0: never.");
  table.Add("--watchdog-least-seconds", "SECONDS", serve.watchdog.least_seconds, "No run hangs before this, in seconds.");
  table.Add("--ready-min-memory-headroom", "SHARE", serve.readiness.min_memory_headroom,
            "Not ready while less than this share of the memory budget is free; below 1. 0: whatever is free.");
  table.Add("--ready-max-queue-delay-ms", "MS", serve.readiness.max_queue_delay_ms,
            "Not ready while a row has waited longer than this, in milliseconds. 0: however long.");
  table.Add("--ready-max-latency-ms", "MS", serve.readiness.max_latency_ms,
            "Not ready while 1 % of the last ten seconds' requests took longer than this, in milliseconds. 0: however long.");
}

void AddWireLimits(OptionTable& table, WireLimits& wire) {
  table.Add("--max-metadata-size", "SIZE", wire.max_metadata_size, "The most metadata of a call, in bytes.");
  table.Add("--max-streams", "N", wire.max_streams, "Calls that a connection may have open; what is beyond waits in the client.");
  table.Add("--max-connections", "N", wire.max_connections,
            "Open gRPC connections; one beyond is closed at once. Each takes a file descriptor.");
  table.Add("--handshake-seconds", "SECONDS", wire.handshake_seconds,
            "How long a connection may take until its first frame of HTTP/2, TLS included, in seconds.");
  table.Add("--keepalive-seconds", "SECONDS", wire.keepalive_seconds,
            "After how much silence a connection is asked whether its peer is there, in seconds.");
  table.Add("--keepalive-timeout-seconds", "SECONDS", wire.keepalive_timeout_seconds,
            "How long that peer may take to answer before the connection is closed, in seconds.");
  table.Add("--min-ping-seconds", "SECONDS", wire.min_ping_seconds,
            "How often a client may ping, with or without calls, in seconds.");
  table.Add("--max-ping-strikes", "N", wire.max_ping_strikes, "How many pings may come sooner before the connection is closed.");
  table.Add("--connection-age-seconds", "SECONDS", wire.connection_age_seconds,
            "After how long a client is asked to connect anew, in seconds, ±10 %; its calls go on. 0: never.");
  table.Add("--connection-grace-seconds", "SECONDS", wire.connection_grace_seconds,
            "How long its calls may go on after that, in seconds. 0: until they end.");
  table.Add("--connection-idle-seconds", "SECONDS", wire.connection_idle_seconds,
            "After how long without a call a connection is closed, in seconds. 0: never.");
  table.Add("--max-abandoned-per-second", "N", wire.max_abandoned_per_second,
            "Calls that a connection may give up a second, with a burst of ten times as many, before it is closed. 0: any number.");
  table.Add("--stream-window", "SIZE", wire.stream_window,
            "What of one call may be under way unread, in bytes. 0: HTTP/2's 64 KiB.");
  table.Add("--compression", "on|off", wire.compression, "Whether requests may be compressed with gzip.");
  table.Add("--max-http-connections", "N", wire.max_http_connections,
            "Open connections to the HTTP port; beyond, the oldest is closed.");
}

void AddSecurity(OptionTable& table, ServeOptions& serve) {
  table.Add("--tls-certificate", "FILE", serve.tls.certificate,
            "The gRPC ports' certificate with its chain, PEM; read again when it changes. Default: no TLS.");
  table.Add("--tls-key", "FILE", serve.tls.key, "The certificate's private key, PEM.");
  table.Add("--tls-client-ca", "FILE", serve.tls.client_ca,
            "Clients must show a certificate of one of these authorities, PEM. Default: clients need none.");
  table.Add("--token-file", "FILE", serve.token_file,
            "Calls must carry 'authorization: Bearer TOKEN' with one of these tokens, one a line; read again when it changes. "
            "ServerLive, ServerReady and health are free. Default: no token is asked for.");
  table.Add("--management-address", "HOST:PORT|unix:PATH", serve.management_address,
            "Where models are loaded and unloaded, with --model-control on. Default: where inference is served.");
  table.Add("--management-token-file", "FILE", serve.management_token_file,
            "As --token-file, for --management-address. Default: the file of --token-file.");
}

void AddServeOptions(OptionTable& table, ServeOptions& serve) {
  AddModelOptions(table, serve.models);
  table.Add("--grpc-address", "HOST:PORT", serve.grpc_address,
            "Where inference is served over gRPC; [v6]:PORT for IPv6, port 0 for a free one, or unix:PATH.");
  table.Add("--http-address", "HOST:PORT", serve.http_address, "Where /metrics, /livez and /readyz are served.");
  table.Add("--workers", "N", serve.workers,
            "Batches that run at once on a device. Default: one for each core on the CPU, one on a GPU.");
  table.Add("--model-control", "on|off", serve.model_control,
            "Whether clients may load, replace and unload models of the repository. A model is code: on only where every "
            "client may run code.");
  table.Add("--ready-file", "PATH", serve.ready_file,
            "A file to write once the server is ready: the addresses that it listens on, as JSON.");
  table.Add("--drain-seconds", "SECONDS", serve.drain_seconds, "How long after SIGTERM what was admitted may take, in seconds.");
  table.Add("--log-format", "text|json", serve.log_format, "Lines for people, or an object a line.");
  table.Add("--log-level", "LEVEL", serve.log_level, "The least that is logged: debug, info, warning or error.");
  table.Add("--host-memory-limit", "SIZE", serve.host_memory_limit,
            "What requests may take of the host's memory together, from message to reply; beyond it they are refused. Default: "
            "a tenth of --memory-limit on the CPU, where it is part of it; beside GPUs a quarter of what the container has left; "
            "64MiB at least.");
  AddRequestLimits(table, serve.limits);
  AddQueue(table, serve.queue);
  AddBreaker(table, serve.breaker);
  AddLifecycle(table, serve);
  AddWireLimits(table, serve.wire);
  AddSecurity(table, serve);
}

void AddPlanOptions(OptionTable& table, PlanOptions& plan) {
  table.AddSwitch("--json", plan.json, "Print JSON instead of a table.");
  const auto read_cards = [&cards = plan.cards](const std::string& text) {
    const absl::StatusOr<std::vector<PlanCard>> read = ParsePlanCards(text);
    if (read.ok()) cards.insert(cards.end(), read->begin(), read->end());
    return read.status();
  };
  table.AddExtra(
      {"--card", "CARD,...",
       "Plan for cards that are not there, on a stand-in for CUDA with PyTorch's own allocator: t4, l4, a10g, a100-80gb, "
       "h100, h200, or a size and a compute capability as in 16GiB or 16GiB:8.0. May be repeated.",
       read_cards});
  table.Add("--card-allowance", "SIZE", plan.card_allowance,
            "What is taken to be gone of each --card before the first tensor: the CUDA context and libraries' internals.");
  table.Add(
      "--traffic", "FILE", plan.traffic,
      "A CSV file of lengths, to tell what that mix needs: columns length and maybe arrival_seconds (a trace), length,count (a "
      "histogram), or quantile and names (quantile functions).");
  table.Add("--traffic-mix", "COLUMN=WEIGHT,...", plan.traffic_mix,
            "How the columns of a table of quantiles are mixed. Default: all equally.");
  table.Add("--buckets", "N", plan.buckets,
            "How many buckets a ladder that is proposed for the traffic may have. Default: as many as the model has.");
  table.Add("--bucket-multiple", "N", plan.bucket_multiple, "What each proposed bucket but the last is a multiple of, in tokens.");
}

// The command line: what is being filled, and what was wrong with it.
struct Parser {
  explicit Parser(const std::vector<ExtraOption>& extra) {
    app.get_formatter()->column_width(kFlagColumns);
    app.set_version_flag("--version", absl::StrCat(kProgram, " ", HEADROOM_VERSION));
    app.require_subcommand(0, 1);
    // Extras are judged here, together with all other faults.
    app.allow_extras();
    serve_verb = app.add_subcommand("serve", "Serve the models of a repository over gRPC.");
    plan_verb = app.add_subcommand("plan", "Load and calibrate, print what each model can do on each device, and exit.");
    health_verb = app.add_subcommand("health", "Ask a server whether it is ready; exit code 0 when it is.");

    OptionTable serve_table(*serve_verb, faults);
    AddServeOptions(serve_table, serve);
    for (const ExtraOption& option : extra) serve_table.AddExtra(option);

    OptionTable plan_table(*plan_verb, faults);
    AddModelOptions(plan_table, plan.models);
    AddPlanOptions(plan_table, plan);

    OptionTable health_table(*health_verb, faults);
    health_table.Add("--address", "HOST:PORT", health.address, "The server's gRPC address.");
    health_table.Add("--timeout", "SECONDS", health.timeout_seconds, "How long to wait for the answer, in seconds.");
    health_table.AddSwitch("--tls", health.tls, "Speak TLS; so does any of the options below.");
    health_table.Add("--tls-ca", "FILE", health.tls_ca,
                     "The authorities that the server's certificate may be of, PEM. Default: this machine's.");
    health_table.Add("--tls-certificate", "FILE", health.tls_certificate, "A certificate for a server that asks for one, PEM.");
    health_table.Add("--tls-key", "FILE", health.tls_key, "That certificate's private key, PEM.");
    health_table.Add("--tls-server-name", "NAME", health.tls_server_name,
                     "The name that the server's certificate must be for. Default: the address's host.");
  }

  std::string verb_name() const {
    return app.get_subcommands().empty() ? "" : absl::StrCat(" ", app.get_subcommands()[0]->get_name());
  }

  CLI::App app{"GPU inference that knows how much memory a batch takes before it runs it.", kProgram};
  CLI::App* serve_verb = nullptr;
  CLI::App* plan_verb = nullptr;
  CLI::App* health_verb = nullptr;
  ServeOptions serve;
  PlanOptions plan;
  HealthOptions health;
  Faults faults;
};

// Arguments that no option takes. An unknown option's value is not a fault of its own.
void NoteLeftovers(const CLI::App& app, const char* what, Faults& faults) {
  const std::vector<std::string> rest = app.remaining();
  const auto is_option = [](const std::string& text) { return text.size() > 1 && text.front() == '-'; };
  const bool options = std::any_of(rest.begin(), rest.end(), is_option);
  for (const std::string& text : rest) {
    if (!options || is_option(text)) faults.push_back(absl::StrCat("unknown ", options ? "option " : what, text));
  }
}

ExitRequest WrongUsage(const Parser& parser, const Faults& faults) {
  const std::string command = absl::StrCat(kProgram, parser.verb_name());
  std::string line = absl::StrCat(command, ": ", absl::StrJoin(faults, "; "));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }, '?');
  return {2, "", absl::StrCat(line, "\n'", command, " --help' lists what there is.\n")};
}

template <class Options>
ParsedCommand Checked(const Parser& parser, const Options& options) {
  Faults faults = parser.faults;
  const std::vector<std::string> invalid = Validate(options);
  faults.insert(faults.end(), invalid.begin(), invalid.end());
  if (!faults.empty()) return WrongUsage(parser, faults);
  return options;
}

}  // namespace

ParsedCommand ParseCommandLine(int argc, const char* const* argv, const std::vector<ExtraOption>& extra) {
  Parser parser(extra);
  try {
    parser.app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help or --version
    std::ostringstream out;
    parser.app.exit(asked, out, out);
    return ExitRequest{0, out.str(), ""};
  } catch (const CLI::ParseError& error) {
    parser.faults.push_back(error.what());
    return WrongUsage(parser, parser.faults);
  }
  NoteLeftovers(parser.app, "command ", parser.faults);
  for (const CLI::App* verb : parser.app.get_subcommands()) NoteLeftovers(*verb, "argument ", parser.faults);
  if (parser.serve_verb->parsed()) return Checked(parser, parser.serve);
  if (parser.plan_verb->parsed()) return Checked(parser, parser.plan);
  if (parser.health_verb->parsed()) return Checked(parser, parser.health);
  if (!parser.faults.empty()) return WrongUsage(parser, parser.faults);
  return ExitRequest{2, "", parser.app.help()};
}

}  // namespace headroom
