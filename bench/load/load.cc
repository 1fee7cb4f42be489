// Load for one server or several in turns, by an open or a closed loop.
//
//   headroom_load open --arm HOST:PORT --mix incident --cut 512 --rate 8 --seconds 30 --rounds 5
//   headroom_load open --arm HOST:PORT --trace trace.csv --speed 3
//   headroom_load closed --arm served=HOST:PORT --arm echo=HOST:PORT --model identity --mix 16 --in-flight 64 --seconds 3 --rounds
//   10
//
// In each round every arm gets the same calls, one arm after the other, and who begins changes with the round. The first arm is
// asked what the model's inputs are. A table goes to stderr, one JSON object to stdout.
//
// Exit code: 0; 1 where a call was a fault; 2 where nothing could be sent; 3 where the sender was more than a millisecond late at
// p99, so that the run's latencies are not those of what was asked for.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "base/status_macros.h"
#include "bench/load/called_model.h"
#include "bench/load/load_client.h"
#include "bench/load/load_report.h"
#include "bench/traffic/arrivals.h"
#include "bench/traffic/length_mix.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFault = 1;
constexpr int kNothingSent = 2;
constexpr int kLate = 3;
constexpr std::size_t kMostMessages = 4096;  // of a closed loop, which repeats them

struct Options {
  std::vector<std::string> arms;
  std::string model = "minilm";
  std::string mix = "search";
  std::string lengths;  // file of quantiles
  std::int64_t cut = 0;
  std::int64_t highest_id = 999;
  bool masks = false;
  int rounds = 1;
  std::int64_t warm_up = 32;
  std::optional<std::uint64_t> seed;
  LoadSettings load;
  // Open.
  ArrivalProcess arrivals{8, 1};
  double seconds = 30;
  std::string trace;
  double speed = 1;
  // Closed.
  std::int64_t in_flight = 32;
  std::int64_t calls = 0;
};

absl::StatusOr<std::string> TextOf(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream) return absl::NotFoundError(absl::StrCat("cannot read ", file));
  return text;
}

struct Arm {
  ArmRounds rounds;
  std::unique_ptr<LoadClient> client;
};

class Load {
 public:
  Load(const Options& options, bool open) : options_(options), open_(open), seed_(options.seed.value_or(std::random_device()())) {}

  absl::Status Prepare() {
    std::string quantiles;
    if (!options_.lengths.empty()) {
      ASSIGN_OR_RETURN(quantiles, TextOf(options_.lengths));
    }
    if (open_ && !options_.trace.empty()) {
      ASSIGN_OR_RETURN(const std::string text, TextOf(options_.trace));
      ASSIGN_OR_RETURN(trace_, ParseTrace(text, options_.speed));
    } else {
      ASSIGN_OR_RETURN(draw_, MakeLengthDraw(options_.mix, quantiles, options_.cut));
    }
    for (const std::string& told : options_.arms) {
      const auto equals = told.find('=');
      Arm& arm = arms_.emplace_back();
      arm.rounds.name = equals == std::string::npos ? told : told.substr(0, equals);
      arm.rounds.address = equals == std::string::npos ? told : told.substr(equals + 1);
      arm.client = std::make_unique<LoadClient>(arm.rounds.address, options_.load);
      RETURN_IF_ERROR(arm.client->Connect());
    }
    ASSIGN_OR_RETURN(model_, CalledModel::Ask(arms_.front().client->channel(), options_.model, options_.masks));
    return absl::OkStatus();
  }

  Json Run() {
    WarmUp();
    for (int round = 0; round < options_.rounds; ++round) {
      const std::vector<ScheduledCall> calls = CallsOf(seed_ + static_cast<std::uint64_t>(round));
      for (std::size_t turn = 0; turn < arms_.size(); ++turn) {
        Arm& arm = arms_[(turn + static_cast<std::size_t>(round)) % arms_.size()];
        arm.rounds.rounds.push_back(
            open_ ? arm.client->RunOpenLoop(calls, scheduling_)
                  : arm.client->RunClosedLoop(calls, {options_.in_flight, options_.calls, FromSeconds(options_.seconds)}));
      }
    }
    std::vector<ArmRounds> rounds;
    for (const Arm& arm : arms_) rounds.push_back(arm.rounds);
    Json told = {{"tool", "headroom_load"}, {"loop", open_ ? "open" : "closed"}, {"options", OptionsTold()}};
    told["scheduled_first"] = {{"sender", scheduling_.sender_first}, {"receivers", scheduling_.receivers_first}};
    told.update(LoadReport(rounds, seed_));
    return told;
  }

 private:
  ScheduledCall CallOf(Duration at, std::int64_t length, Random& random) const {
    return {at, length, model_->Message(length, options_.highest_id, random)};
  }

  // What a round's calls are depends on its seed alone: headroom_ideal draws the same lengths from the same seed.
  std::vector<ScheduledCall> CallsOf(std::uint64_t seed) const {
    Random random(~seed);  // for all but the lengths
    std::vector<ScheduledCall> calls;
    if (!trace_.empty()) {
      for (const Arrival& arrival : trace_) {
        if (arrival.at >= FromSeconds(options_.seconds)) break;
        const std::int64_t length = options_.cut > 0 ? std::min(options_.cut, arrival.length) : arrival.length;
        calls.push_back(CallOf(arrival.at, length, random));
      }
      return calls;
    }
    std::vector<Duration> times(options_.calls > 0 ? std::min(kMostMessages, static_cast<std::size_t>(options_.calls))
                                                   : kMostMessages);
    if (open_) times = ArrivalTimes(random, options_.arrivals, FromSeconds(options_.seconds));
    const std::vector<std::int64_t> lengths = DrawLengths(draw_, times.size(), seed);
    for (std::size_t i = 0; i < times.size(); ++i) calls.push_back(CallOf(times[i], lengths[i], random));
    return calls;
  }

  void WarmUp() {
    if (options_.warm_up <= 0) return;
    Random random(seed_);
    std::vector<ScheduledCall> calls;
    for (std::int64_t i = 0; i < options_.warm_up; ++i) {
      calls.push_back(
          CallOf(Duration::zero(), draw_ ? draw_(random) : trace_[static_cast<std::size_t>(i) % trace_.size()].length, random));
    }
    for (Arm& arm : arms_) arm.client->RunClosedLoop(calls, {4, options_.warm_up, {}});
  }

  Json OptionsTold() const {
    Json told = {{"model", options_.model},
                 {"mix", trace_.empty() ? options_.mix : "trace"},
                 {"cut", options_.cut},
                 {"seed", seed_},
                 {"rounds", options_.rounds},
                 {"connections", options_.load.connections},
                 {"deadline_ms", options_.load.deadline_ms},
                 {"masks", options_.masks}};
    if (open_) {
      told["rate"] = trace_.empty() ? Json(options_.arrivals.rate) : Json();
      told["burst_factor"] = options_.arrivals.burst_factor;
      told["speed"] = trace_.empty() ? Json() : Json(options_.speed);
      told["seconds"] = options_.seconds;
    } else {
      told["in_flight"] = options_.in_flight;
      told["calls"] = options_.calls;
      told["seconds"] = options_.calls > 0 ? Json() : Json(options_.seconds);
    }
    return told;
  }

  const Options& options_;
  const bool open_;
  const std::uint64_t seed_;
  LengthDraw draw_;             // empty for a trace
  std::vector<Arrival> trace_;  // empty for a mix
  std::vector<Arm> arms_;
  std::optional<CalledModel> model_;
  Scheduling scheduling_;
};

int Measure(const Options& options, bool open) {
  Load load(options, open);
  if (const absl::Status status = load.Prepare(); !status.ok()) {
    std::fprintf(stderr, "headroom_load: %s\n", std::string(status.message()).c_str());
    return kNothingSent;
  }
  const Json told = load.Run();
  std::int64_t sent = 0;
  std::int64_t faults = 0;
  for (const Json& arm : told["arms"]) {
    sent += arm["sent"].get<std::int64_t>();
    faults += arm["faults"].get<std::int64_t>();
  }
  std::fprintf(stderr, "%s", TableOf(told).c_str());
  std::printf("%s\n", told.dump().c_str());
  if (sent == 0) return kNothingSent;
  if (faults > 0) return kFault;
  if (!told["sender_on_time"].get<bool>()) {
    std::fprintf(stderr, "headroom_load: the sender was late: this run says nothing about latency\n");
    return kLate;
  }
  return 0;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Load for one server, or for several in turns.");
  app.require_subcommand(1);
  CLI::App* const open = app.add_subcommand("open", "calls are sent at their times, whatever has become of those before");
  CLI::App* const closed = app.add_subcommand("closed", "a call is sent when one has ended");
  for (CLI::App* const verb : {open, closed}) {
    verb->add_option("--arm", options.arms, "HOST:PORT or NAME=HOST:PORT, once for each server")->required();
    verb->add_option("--model", options.model)->capture_default_str();
    verb->add_option("--mix", options.mix, "lengths: search, incident, LOW-HIGH, or one length")->capture_default_str();
    verb->add_option("--lengths", options.lengths, "FILE, a table of quantiles (quantile,NAME,...), which the search mix needs");
    verb->add_option("--cut", options.cut, "tokens, to which longer rows are cut; 0: none are")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    verb->add_option("--highest-id", options.highest_id, "token ids are drawn from 0 to this")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    verb->add_flag("--masks", options.masks, "send a mask of ones; left out, the server makes it");
    verb->add_option("--rounds", options.rounds, "turns of each arm")->check(CLI::Range(1, 10000))->capture_default_str();
    verb->add_option("--seconds", options.seconds, "of a round")->check(CLI::PositiveNumber)->capture_default_str();
    verb->add_option("--warm-up", options.warm_up, "calls to each arm before the first round")->capture_default_str();
    verb->add_option("--seed", options.seed, "of the first round; drawn, and told, where it is not given");
    verb->add_option("--connections", options.load.connections, "to each arm, a thread each")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    verb->add_option("--deadline-ms", options.load.deadline_ms, "of each call; 0: none")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
  }
  open->add_option("--rate", options.arrivals.rate, "calls a second, on average")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  open->add_option("--burst-factor", options.arrivals.burst_factor, "rate in bursts by the calm one: a second of each ten")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  open->add_option("--trace", options.trace, "FILE (arrival_seconds,length) that is replayed instead of a mix, for --seconds");
  open->add_option("--speed", options.speed, "of the trace, times its own")->check(CLI::PositiveNumber)->capture_default_str();
  open->add_flag("!--no-realtime", options.load.realtime, "do not schedule the sender SCHED_FIFO");
  closed->add_option("--in-flight", options.in_flight, "calls at once, of one row each")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  closed->add_option("--calls", options.calls, "of a round; 0: as many as --seconds allow")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return Measure(options, open->parsed());
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) { return headroom::Main(argc, argv); }
