// Sends damaged ModelInfer messages to a live server, beside a slow stream of good calls whose answers are known.
//
//   headroom_mutated_messages HOST:PORT MESSAGES [NAME=VALUE ...]
//     connections=4    each with `in_flight` messages under way
//     in_flight=16
//     rate=0           messages a second over all connections; 0: as fast as they are answered
//     good_rate=50     good calls a second
//     rounds=10        each: good calls alone, beside valid messages, beside damaged ones
//     seconds=2        of good calls alone in each round
//     seed=0           0: drawn
//     pid=0            of the server, where it runs on this machine: its resident memory is told
//
// The server serves the toys P, attn, identity, two_outputs and no_mask. Valid messages are what is damaged, and are sent at the
// same pace for comparison. Latencies of good calls count from the time that was meant. Prints the answers by status, the latencies
// in each company, and resident memory. Exit code: 0; 1 where a message was answered INTERNAL, UNKNOWN or UNAVAILABLE or not in
// time, a valid one INVALID_ARGUMENT, or a good call failed or had a wrong answer; 2 wrong usage.
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "proto/open_inference.grpc.pb.h"
#include "test/fuzz/wire_mutator.h"

namespace headroom {
namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;

constexpr char kMethod[] = "/inference.GRPCInferenceService/ModelInfer";
// Longer than any answer may take: what has none by then hangs.
constexpr Duration kPatience = std::chrono::seconds(60);
constexpr std::array<const char*, 17> kCodes = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

struct Settings {
  std::string address;
  std::int64_t messages = 0;
  std::map<std::string, std::int64_t> numbers = {{"connections", 4}, {"in_flight", 16}, {"rate", 0}, {"good_rate", 50},
                                                 {"rounds", 10},     {"seconds", 2},    {"seed", 0}, {"pid", 0}};
  std::int64_t Of(const char* name) const { return numbers.at(name); }
};

template <class T>
void AddInput(ModelInferRequest& request, const char* name, const char* type, const std::vector<std::int64_t>& shape,
              const std::vector<T>& elements) {
  auto* const input = request.add_inputs();
  input->set_name(name);
  input->set_datatype(type);
  input->mutable_shape()->Add(shape.begin(), shape.end());
  request.add_raw_input_contents(std::string(reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)));
}

ModelInferRequest TokensFor(const char* model, std::int64_t rows, std::int64_t length, bool mask) {
  ModelInferRequest request;
  request.set_model_name(model);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows * length));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * 7 % 1000);
  AddInput(request, "input_ids", "INT64", {rows, length}, ids);
  if (!mask) return request;
  std::vector<std::int64_t> kept(ids.size(), 0);
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = static_cast<std::int64_t>(i) % length <= length / 2 ? 1 : 0;
  AddInput(request, "attention_mask", "INT64", {rows, length}, kept);
  return request;
}

std::vector<std::string> ValidMessages() {
  std::vector<ModelInferRequest> requests;
  for (const char* const model : {"P", "attn", "two_outputs"}) {
    for (const std::int64_t length : {1, 9, 40}) {
      requests.push_back(TokensFor(model, 1, length, false));
      requests.push_back(TokensFor(model, 3, length, true));
    }
  }
  requests.push_back(TokensFor("no_mask", 2, 12, false));
  requests.emplace_back().set_model_name("identity");
  AddInput(requests.back(), "x", "FP32", {2, 16}, std::vector<float>(32, 0.5F));
  ModelInferRequest typed = TokensFor("P", 2, 5, false);
  typed.clear_raw_input_contents();
  for (std::int64_t id = 0; id < 10; ++id) typed.mutable_inputs(0)->mutable_contents()->add_int64_contents(id);
  requests.push_back(typed);
  ModelInferRequest chosen = TokensFor("two_outputs", 2, 8, true);
  chosen.add_outputs()->set_name("tokens");
  chosen.set_id("an id");
  (*chosen.mutable_parameters())["explain"].set_bool_param(true);
  (*chosen.mutable_parameters())["timeout"].set_int64_param(5'000'000);
  requests.push_back(chosen);
  std::vector<std::string> messages;
  for (const ModelInferRequest& request : requests) messages.push_back(request.SerializeAsString());
  return messages;
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void GiveUpAfter(grpc::ClientContext& context, Duration patience) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  context.set_deadline(gpr_timespec{ms / 1000, 0, GPR_TIMESPAN});
}

// Sleeps through the clock: waits for what nobody notifies.
void PauseUntil(TimePoint until) {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  while (RealClock().Now() < until) RealClock().WaitUntil(mutex, never, until);
}

TimePoint Paced(TimePoint began, std::int64_t count, double rate) {
  return began + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(static_cast<double>(count) / rate));
}

// How the messages were answered.
struct Answers {
  std::array<std::int64_t, kCodes.size()> by_code{};
  std::int64_t hung = 0;
  std::string complaint;  // the first that is the server's fault

  void Add(const Answers& other) {
    for (std::size_t i = 0; i < by_code.size(); ++i) by_code[i] += other.by_code[i];
    hung += other.hung;
    if (complaint.empty()) complaint = other.complaint;
  }
  std::int64_t faults() const {
    return hung + by_code[grpc::StatusCode::INTERNAL] + by_code[grpc::StatusCode::UNKNOWN] + by_code[grpc::StatusCode::UNAVAILABLE];
  }
};

// One connection with messages under way on it. Used by one thread.
class Sender {
 public:
  Sender(const std::string& address, std::uint64_t seed) : stub_(Connect(address)), mutator_(seed), random_(seed ^ 1) {}

  // Sends `count` messages and waits for every answer.
  Answers Send(std::int64_t count, bool damaged, std::int64_t in_flight, double rate) {
    Answers answers;
    const TimePoint began = RealClock().Now();
    std::int64_t started = 0;
    for (std::int64_t ended = 0; ended < count;) {
      while (started < count && started - ended < in_flight) {
        if (rate > 0) PauseUntil(Paced(began, started, rate));
        Start(damaged);
        ++started;
      }
      Take(answers);
      ++ended;
    }
    return answers;
  }

 private:
  struct Call {
    TimePoint sent;
    std::string message;
    grpc::ClientContext context;
    grpc::ByteBuffer reply;
    grpc::Status status;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  };

  const std::string& Any() { return messages_[std::uniform_int_distribution<std::size_t>(0, messages_.size() - 1)(random_)]; }

  void Start(bool damaged) {
    auto* const call = new Call;
    call->message = Any();
    if (damaged) call->message = random_() % 8 == 0 ? mutator_.Splice(call->message, Any()) : mutator_.Mutate(call->message, Any());
    call->sent = RealClock().Now();
    GiveUpAfter(call->context, kPatience);
    const grpc::Slice slice(call->message);
    call->reader = stub_.PrepareUnaryCall(&call->context, kMethod, grpc::ByteBuffer(&slice, 1), &queue_);
    call->reader->StartCall();
    call->reader->Finish(&call->reply, &call->status, call);
  }

  void Take(Answers& answers) {
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
    const std::unique_ptr<Call> call(static_cast<Call*>(tag));
    const auto code = static_cast<std::size_t>(call->status.error_code());
    const std::int64_t before = answers.faults();
    ++answers.by_code[std::min(code, kCodes.size() - 1)];
    // A request may bring a timeout of its own: only one that was as long as ours is ours.
    if (code == grpc::StatusCode::DEADLINE_EXCEEDED && RealClock().Now() - call->sent > kPatience * 9 / 10) ++answers.hung;
    if (answers.faults() > before && answers.complaint.empty()) {
      answers.complaint = absl::StrCat(kCodes[code], ": ", call->status.error_message(), " of the message ", HexOf(call->message));
    }
  }

  static std::string HexOf(const std::string& bytes) {
    std::string hex;
    for (const char byte : bytes) absl::StrAppend(&hex, absl::Hex(static_cast<unsigned char>(byte), absl::kZeroPad2));
    return hex;
  }

  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  const std::vector<std::string> messages_ = ValidMessages();
  WireMutator mutator_;
  std::mt19937_64 random_;
};

enum Company { kAlone, kBesideValid, kBesideDamaged, kCompanies };

// Calls P at a steady rate, whether or not earlier calls have been answered, with answers that are worked out beforehand.
class GoodStream {
 public:
  GoodStream(const std::string& address, double rate, std::uint64_t seed)
      : stub_(inference::GRPCInferenceService::NewStub(Connect(address))),
        rate_(rate),
        random_(seed),
        sender_([this] { SendAll(); }),
        receiver_([this] { ReceiveAll(); }) {}
  ~GoodStream() { End(); }
  GoodStream(const GoodStream&) = delete;
  GoodStream& operator=(const GoodStream&) = delete;

  void Keep(Company company) { company_ = company; }
  // Waits for the answers that are still to come.
  void End() {
    over_ = true;
    if (!sender_.joinable()) return;
    sender_.join();
    receiver_.join();
  }

  // After End.
  std::size_t calls() const { return calls_; }
  std::size_t wrong() const { return wrong_; }
  const std::string& complaint() const { return complaint_; }
  double Milliseconds(Company company, double quantile) {
    std::vector<double>& sorted = milliseconds_[static_cast<std::size_t>(company)];
    if (sorted.empty()) return 0;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(quantile * static_cast<double>(sorted.size() - 1))];
  }
  std::size_t CallsIn(Company company) const { return milliseconds_[static_cast<std::size_t>(company)].size(); }

 private:
  struct Call {
    TimePoint meant;
    Company company = kAlone;
    float count = 0;
    float sum = 0;
    grpc::ClientContext context;
    ModelInferResponse reply;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<ModelInferResponse>> reader;
  };

  void SendAll() {
    const TimePoint began = RealClock().Now();
    for (std::int64_t sent = 0; !over_; ++sent) {
      const TimePoint meant = Paced(began, sent, rate_);
      PauseUntil(meant);
      Send(meant);
    }
    queue_.Shutdown();
  }

  void Send(TimePoint meant) {
    auto* const call = new Call;
    call->meant = meant;
    call->company = company_;
    const auto length = std::uniform_int_distribution<std::int64_t>(1, 64)(random_);
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < length; ++i) {
      ids.push_back(std::uniform_int_distribution<std::int64_t>(0, 999)(random_));
      call->sum += static_cast<float>(ids.back());
    }
    call->count = static_cast<float>(length);
    ModelInferRequest request;
    request.set_model_name("P");
    AddInput(request, "input_ids", "INT64", {1, length}, ids);
    GiveUpAfter(call->context, kPatience);
    call->reader = stub_->AsyncModelInfer(&call->context, request, &queue_);
    call->reader->Finish(&call->reply, &call->status, call);
  }

  void ReceiveAll() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
      const std::unique_ptr<Call> call(static_cast<Call*>(tag));
      ++calls_;
      if (const std::string fault = FaultOf(*call); !fault.empty()) {
        ++wrong_;
        if (complaint_.empty()) complaint_ = fault;
      }
      // One that saw two companies would tell of neither.
      if (call->company != company_) continue;
      milliseconds_[static_cast<std::size_t>(call->company)].push_back(Seconds(RealClock().Now() - call->meant) * 1000);
    }
  }

  // Empty: none.
  static std::string FaultOf(const Call& call) {
    if (!call.status.ok()) return call.status.error_message();
    std::array<float, 4> row{};
    const ModelInferResponse& reply = call.reply;
    if (reply.raw_output_contents_size() != 1 || reply.raw_output_contents(0).size() != sizeof row)
      return "a reply of another size";
    std::memcpy(row.data(), reply.raw_output_contents(0).data(), sizeof row);
    return row[0] == call.count && row[1] == call.sum ? "" : "a wrong answer";
  }

  const std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
  const double rate_;
  std::mt19937_64 random_;  // the sender's
  grpc::CompletionQueue queue_;
  std::atomic<Company> company_ = kAlone;
  std::atomic<bool> over_ = false;
  // The receiver's.
  std::size_t calls_ = 0;
  std::size_t wrong_ = 0;
  std::string complaint_;
  std::array<std::vector<double>, kCompanies> milliseconds_;
  // Last: they use all of the above.
  std::thread sender_;
  std::thread receiver_;
};

// In MiB; 0 where it cannot be read.
double ResidentMib(std::int64_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    double kib = 0;
    if (absl::StartsWith(line, "VmRSS:") && std::sscanf(line.c_str(), "VmRSS: %lf kB", &kib) == 1) return kib / 1024;
  }
  return 0;
}

Answers SendAll(std::vector<std::unique_ptr<Sender>>& senders, std::int64_t count, bool damaged, const Settings& settings) {
  std::vector<Answers> parts(senders.size());
  std::vector<std::thread> threads;
  const auto share = static_cast<double>(senders.size());
  for (std::size_t i = 0; i < senders.size(); ++i) {
    const auto of = static_cast<std::int64_t>(senders.size());
    const std::int64_t mine = count / of + (static_cast<std::int64_t>(i) < count % of ? 1 : 0);
    threads.emplace_back([&, i, mine] {
      parts[i] = senders[i]->Send(mine, damaged, settings.Of("in_flight"), static_cast<double>(settings.Of("rate")) / share);
    });
  }
  Answers answers;
  for (std::size_t i = 0; i < senders.size(); ++i) {
    threads[i].join();
    answers.Add(parts[i]);
  }
  return answers;
}

void Print(const char* what, const Answers& answers, double seconds) {
  std::int64_t sent = 0;
  for (const std::int64_t count : answers.by_code) sent += count;
  std::printf("%s: %lld in %.1f s", what, static_cast<long long>(sent), seconds);
  for (std::size_t code = 0; code < kCodes.size(); ++code) {
    if (answers.by_code[code] > 0) std::printf(", %s %lld", kCodes[code], static_cast<long long>(answers.by_code[code]));
  }
  std::printf(", hung %lld\n", static_cast<long long>(answers.hung));
  if (!answers.complaint.empty()) std::printf("%s: the first fault: %s\n", what, answers.complaint.c_str());
  std::fflush(stdout);
}

bool Read(const std::vector<std::string>& words, Settings& settings) {
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &settings.messages) || settings.messages < 1) return false;
  settings.address = words[0];
  for (std::size_t i = 2; i < words.size(); ++i) {
    const std::vector<std::string> sides = absl::StrSplit(words[i], '=');
    const auto found = settings.numbers.find(sides[0]);
    if (sides.size() != 2 || found == settings.numbers.end() || !absl::SimpleAtoi(sides[1], &found->second)) return false;
  }
  return settings.Of("connections") > 0 && settings.Of("in_flight") > 0 && settings.Of("rounds") > 0 &&
         settings.Of("good_rate") > 0;
}

int Main(const std::vector<std::string>& words) {
  Settings settings;
  if (!Read(words, settings)) {
    std::fprintf(stderr, "headroom_mutated_messages: HOST:PORT MESSAGES [NAME=NUMBER ...]\n");
    return 2;
  }
  const auto seed = settings.Of("seed") != 0 ? static_cast<std::uint64_t>(settings.Of("seed")) : std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::vector<std::unique_ptr<Sender>> senders;
  for (std::int64_t i = 0; i < settings.Of("connections"); ++i) {
    senders.push_back(std::make_unique<Sender>(settings.address, seed * 1000 + static_cast<std::uint64_t>(i)));
  }
  GoodStream good(settings.address, static_cast<double>(settings.Of("good_rate")), seed);
  Answers valid;
  Answers damaged;
  double valid_seconds = 0;
  double damaged_seconds = 0;
  double resident_first = 0;
  const std::int64_t rounds = settings.Of("rounds");
  for (std::int64_t round = 0; round < rounds; ++round) {
    const std::int64_t count = settings.messages / rounds + (round < settings.messages % rounds ? 1 : 0);
    good.Keep(kAlone);
    PauseUntil(RealClock().Now() + std::chrono::seconds(settings.Of("seconds")));
    TimePoint began = RealClock().Now();
    good.Keep(kBesideValid);
    valid.Add(SendAll(senders, (count + 3) / 4, /*damaged=*/false, settings));
    valid_seconds += Seconds(RealClock().Now() - began);
    began = RealClock().Now();
    good.Keep(kBesideDamaged);
    damaged.Add(SendAll(senders, count, /*damaged=*/true, settings));
    damaged_seconds += Seconds(RealClock().Now() - began);
    if (round == 0) resident_first = ResidentMib(settings.Of("pid"));
  }
  good.End();
  Print("valid", valid, valid_seconds);
  Print("damaged", damaged, damaged_seconds);
  std::printf("good: %zu calls, %zu wrong%s%s\n", good.calls(), good.wrong(),
              good.complaint().empty() ? "" : ", the first: ", good.complaint().c_str());
  for (const auto& [company, name] :
       {std::pair{kAlone, "alone"}, {kBesideValid, "beside valid"}, {kBesideDamaged, "beside damaged"}}) {
    std::printf("good, %s: %zu calls, p50 %.2f ms, p99 %.2f ms\n", name, good.CallsIn(company), good.Milliseconds(company, 0.5),
                good.Milliseconds(company, 0.99));
  }
  if (settings.Of("pid") > 0) {
    std::printf("resident: %.1f MiB after the first round, %.1f MiB at the end\n", resident_first, ResidentMib(settings.Of("pid")));
  }
  const std::int64_t valid_refused = valid.by_code[grpc::StatusCode::INVALID_ARGUMENT];
  return valid.faults() + damaged.faults() + static_cast<std::int64_t>(good.wrong()) + valid_refused == 0 ? 0 : 1;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) { return headroom::Main({argv + 1, argv + argc}); }
