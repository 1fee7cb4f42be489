#include "server/serve_command.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <thread>

#include "base/log.h"
#include "base/status_macros.h"
#include "metrics/prometheus_observer.h"
#include "server/degradation_steps.h"
#include "server/fallback_check.h"
#include "server/fault_report.h"
#include "server/fragment_release.h"
#include "server/grpc_listener.h"
#include "server/host_allowance.h"
#include "server/host_memory.h"
#include "server/http_server.h"
#include "server/ladder_report.h"
#include "server/length_records.h"
#include "server/lifecycle.h"
#include "server/log_sink.h"
#include "server/management_service.h"
#include "server/memory_watch.h"
#include "server/model_loader.h"
#include "server/readiness_watch.h"
#include "server/ready_file.h"
#include "server/resource_watch.h"
#include "server/run_watchdog.h"
#include "server/server_state.h"
#include "server/signals.h"
#include "server/worker_pool.h"

namespace headroom {
namespace {

// What a lost device leaves unanswered is answered within this, or never.
constexpr Duration kLostGrace = std::chrono::seconds(2);

// What management calls may hold of messages under way: they are a few bytes long.
constexpr Bytes kManagementBuffers = MiB(64);

void RefuseAllWaiting(const ModelSet& served, const char* why) {
  const auto models = served.All();
  for (const auto& model : *models) RefuseWaiting(*model, why);
}

// Counts, and passes on lost devices and latencies.
class ServingObserver final : public PrometheusObserver {
 public:
  ServingObserver(const std::string& version, Lifecycle& lifecycle, const ModelCatalog& catalog, ReadinessWatch& readiness)
      : PrometheusObserver(version), lifecycle_(lifecycle), catalog_(catalog), readiness_(readiness) {}

  void RequestAnswered(const std::string& model, Outcome outcome, std::int64_t rows, Duration took) override {
    PrometheusObserver::RequestAnswered(model, outcome, rows, took);
    answered_.fetch_add(1, std::memory_order_relaxed);
    // Refusals are quick, and would hide how slow the others are.
    if (rows > 0) readiness_.Answered(took);
  }
  // Since the start, whatever the answer.
  std::int64_t answered() const { return answered_.load(std::memory_order_relaxed); }

  void DeviceWasLost(const std::string& device, const std::string& why) override {
    if (lost_.exchange(true)) return;
    Log(LogLevel::kError, "a device was lost: the server answers what waits and ends", {{"device", device}, {"reason", why}});
    lifecycle_.LoseDevice(why);
    RefuseAllWaiting(catalog_.models(), "the device was lost");
  }

 private:
  Lifecycle& lifecycle_;
  const ModelCatalog& catalog_;
  ReadinessWatch& readiness_;
  std::atomic<bool> lost_ = false;
  std::atomic<std::int64_t> answered_ = 0;
};

// Memory that runs out while figures are kept must not end the heartbeat.
void WatchUntilStopped(ResourceWatch& watch, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    try {
      watch.Run(stop);
    } catch (const std::exception& error) {
      Log(LogLevel::kError, "a look at memory was broken off", {{"reason", error.what()}});
    }
  }
}

int WorkersPerDevice(const ServeOptions& options, const std::vector<RepositoryModel>& models, DeviceKind kind) {
  if (options.workers) return *options.workers;
  std::int64_t wished = 0;
  for (const RepositoryModel& model : models) wished = std::max(wished, model.spec.instances);
  if (wished > 0) return static_cast<int>(wished);
  // On a CPU a worker of one thread a core beats fewer workers of more threads, which wait for their slowest at every operation.
  return kind == DeviceKind::kCpu ? std::max(1, UsableProcessors() / options.models.intra_op_threads) : 1;
}

// One server from its options to its end. Members are destroyed in the reverse of their order, which is the order of a shutdown:
// listeners first, then what they use.
class Serving {
 public:
  Serving(const ServeOptions& options, const ProgramHooks& hooks)
      : options_(options),
        hooks_(hooks),
        queue_totals_({options.queue.max_rows, options.queue.max_bytes}),
        lifecycle_(RealClock(), std::chrono::seconds(options.settle_seconds)),
        readiness_(catalog_.models(), lifecycle_, options.readiness),
        observer_(HEADROOM_VERSION, lifecycle_, catalog_, readiness_),
        deadlines_(catalog_.models(), RealClock()),
        breaker_(options.breaker, RealClock()),
        tail_(observer_, RealClock()),
        control_({options.models, devices_, registry_, catalog_, work_, RealClock(), lifecycle_.stop_token(),
                  [this](const ServedModel& model) { Announce(model); }, &queue_totals_, &lengths_}),
        watchdog_(devices_, observer_, options.watchdog),
        service_(PartsOf(options.model_control && !options.management_address)),
        management_service_(PartsOf(options.model_control)) {}
  // The watch may still tell of a strain while the listeners end.
  ~Serving() { lifecycle_.OnServingChanged(nullptr); }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  absl::StatusOr<int> Run() {
    signals_.SetHandler([this] { lifecycle_.Stop(); });
    absl::Status started = Start();
    if (absl::IsCancelled(started) && lifecycle_.phase() == Lifecycle::Phase::kDraining) return 0;
    if (!started.ok()) {
      EndIfDeviceLost(devices_, started);
      return started;
    }
    return End(lifecycle_.WaitForEnd());
  }

 private:
  absl::Status Start() {
    if (!options_.ready_file.empty()) RETURN_IF_ERROR(ClearReadyFile(options_.ready_file));
    ASSIGN_OR_RETURN(const RepositoryContents repository,
                     ReadRepository(options_.models.model_repository, options_.models.model_manifest));
    for (const std::string& warning : repository.warnings) Log(LogLevel::kWarning, warning);
    for (const RepositoryModel& model : repository.models) {
      for (const std::string& warning : model.warnings) Log(LogLevel::kWarning, warning, {{"model", model.name}});
    }
    RETURN_IF_ERROR(CheckFallbackModels(repository.models));
    ASSIGN_OR_RETURN(devices_, MakeDevices(options_.models, hooks_.wrap_device));
    RETURN_IF_ERROR(Listen());

    ASSIGN_OR_RETURN(const std::vector<CatalogEntry> entries, LoadModels(repository.models, devices_, registry_, options_.models,
                                                                         lifecycle_.stop_token(), &queue_totals_, &lengths_));
    const int workers = WorkersPerDevice(options_, repository.models, devices_.front()->device->kind());
    ASSIGN_OR_RETURN(const HostAllowance allowance, OpenHostBudget(options_.host_memory_limit, entries, devices_, workers, host_));
    grpc_->LimitBuffers(allowance.wire);
    workers_ = std::make_unique<WorkerPool>(
        WorkerPool::Parts{devices_, entries, catalog_, observer_, work_, deadlines_, RealClock(), workers});
    for (const auto& device : devices_) RETURN_IF_ERROR(device->budget->MarkAtRest());
    for (const CatalogEntry& entry : entries) {
      Announce(*entry.model);
      catalog_.Put(entry);
    }
    StartWatch();
    return GoReady(entries, workers);
  }

  // The first look, at everything loaded and warm with no request inside, is the baseline.
  void StartWatch() {
    degradation_ = std::make_unique<DegradationSteps>(devices_);
    watch_ = std::make_unique<ResourceWatch>(
        ResourceWatch::Parts{devices_,
                             observer_,
                             RealClock(),
                             [this] { return observer_.answered(); },
                             [] { return ReadProcessMemory(); },
                             {&memory_watch_, &fragment_release_, degradation_.get(), &readiness_, &ladders_}});
    watch_->Step();
    watching_ = std::jthread([this](const std::stop_token& stop) { WatchUntilStopped(*watch_, stop); });
    watchdog_watch_ = std::make_unique<ResourceWatch>(ResourceWatch::Parts{no_devices_,
                                                                           observer_,
                                                                           RealClock(),
                                                                           [] { return std::int64_t{0}; },
                                                                           [] { return absl::UnavailableError("not asked for"); },
                                                                           {&watchdog_}});
    watching_runs_ = std::jthread([this](const std::stop_token& stop) { WatchUntilStopped(*watchdog_watch_, stop); });
  }

  ServiceParts PartsOf(bool model_control) {
    ServiceParts parts{lifecycle_,
                       catalog_,
                       observer_,
                       work_,
                       deadlines_,
                       host_,
                       breaker_,
                       tail_,
                       RealClock(),
                       options_.limits,
                       options_.queue,
                       model_control,
                       control_,
                       management_,
                       [this](const std::string& model, std::int64_t version) { return observer_.TotalsOf(model, version); }};
    if (options_.management_address) {
      parts.control_refusal = "models are loaded and unloaded at the server's management address alone (--management-address)";
    }
    return parts;
  }

  absl::Status ListenForGrpc() {
    ListenerSettings settings{
        "--grpc-address", options_.grpc_address, options_.limits, options_.wire, {options_.tls, options_.token_file}};
    if (IsUnix(settings.address)) settings.security.tls = {};
    ASSIGN_OR_RETURN(grpc_, GrpcListener::Start(settings, service_, RealClock()));
    if (!options_.token_file.empty() && options_.tls.certificate.empty() && !IsUnix(settings.address)) {
      Log(LogLevel::kWarning,
          "--token-file without --tls-certificate: tokens cross the network for everybody to read, unless a proxy "
          "or a mesh encrypts it");
    }
    if (!options_.management_address) return absl::OkStatus();
    settings.flag = "--management-address";
    settings.address = *options_.management_address;
    settings.security = {IsUnix(settings.address) ? TlsFiles{} : options_.tls, options_.token_file};
    if (!options_.management_token_file.empty()) {
      settings.security.token_file = options_.management_token_file;
      settings.security.token_flag = "--management-token-file";
    }
    ASSIGN_OR_RETURN(management_listener_, GrpcListener::Start(settings, management_service_, RealClock()));
    management_listener_->LimitBuffers(kManagementBuffers);
    return absl::OkStatus();
  }

  absl::Status Listen() {
    RETURN_IF_ERROR(ListenForGrpc());
    lifecycle_.OnServingChanged([this](bool serving) {
      grpc_->SetServing(serving);
      if (management_listener_ != nullptr) management_listener_->SetServing(serving);
    });
    observer_.SetStateSource([parts = StateParts{devices_, catalog_, lifecycle_, readiness_, memory_watch_, host_, breaker_, *grpc_,
                                                 RealClock(), ladders_}] { return ReadState(parts); });
    HttpHandlers handlers;
    handlers.metrics = [this] { return observer_.Scrape(); };
    handlers.not_ready = [this]() -> std::optional<std::string> {
      std::string reason = lifecycle_.NotReadyReason();
      if (reason.empty()) return std::nullopt;
      return reason;
    };
    handlers.degraded = [this] { return DegradationText(devices_); };
    handlers.ladders = [this] { return LaddersAsJson(ladders_.Ladders()); };
    handlers.lengths = [this](const std::string& model) -> std::optional<std::string> {
      const auto entry = catalog_.Find(model, "");
      if (!entry.ok() || !entry->model->spec->variable_length()) return std::nullopt;
      return LengthsAsCsv(entry->model->lengths->Counts());
    };
    auto http = HttpServer::Start(options_.http_address.host, options_.http_address.port, handlers,
                                  static_cast<std::size_t>(options_.wire.max_http_connections));
    if (!http.ok()) return {http.status().code(), absl::StrCat("--http-address: ", std::string(http.status().message()))};
    http_ = *std::move(http);
    Log(LogLevel::kInfo, "listening, not ready yet", {{"grpc", ToString(GrpcAddress())}, {"http", ToString(HttpAddress())}});
    if (management_listener_ != nullptr) {
      Log(LogLevel::kInfo, "listening for management", {{"management", ToString(management_listener_->address())}});
    }
    return absl::OkStatus();
  }

  // Makes the series of a model that clients are about to find.
  void Announce(const ServedModel& model) {
    ModelLabels labels;
    labels.model = model.spec->name;
    for (const ModelInstance& instance : model.instances) labels.devices.push_back(instance.on->device->name());
    for (const auto& length : model.instances.front().ladder.ShapesToCalibrate().lengths) labels.buckets.push_back(length.length);
    labels.version = model.version;
    observer_.AddModel(labels);
    LogPlan(model);
  }

  absl::Status GoReady(const std::vector<CatalogEntry>& entries, int workers) {
    if (hooks_.when_ready) hooks_.when_ready();
    lifecycle_.StartServing();
    std::vector<std::string> names;
    for (const auto& device : devices_) names.push_back(device->device->name());
    Log(LogLevel::kInfo, "ready",
        {{"grpc", ToString(GrpcAddress())},
         {"http", ToString(HttpAddress())},
         {"models", entries.size()},
         {"devices", absl::StrJoin(names, ",")},
         {"workers_per_device", workers}});
    if (options_.ready_file.empty() || lifecycle_.phase() != Lifecycle::Phase::kServing) return absl::OkStatus();
    std::optional<Address> management;
    if (management_listener_ != nullptr) management = management_listener_->address();
    return WriteReadyFile(options_.ready_file, GrpcAddress(), HttpAddress(), management);
  }

  void LogPlan(const ServedModel& model) const {
    for (const ModelInstance& instance : model.instances) {
      const auto budget = instance.on->budget->Snapshot();
      if (!budget.ok()) continue;
      std::vector<std::string> largest;
      for (const auto& length : instance.ladder.ShapesToCalibrate().lengths) {
        largest.push_back(absl::StrCat(length.length, ":", LargestBatch(model, instance, length.length, budget->budget)));
      }
      Log(LogLevel::kInfo, "serving",
          {{"model", model.spec->name},
           {"version", model.version},
           {"device", instance.on->device->name()},
           {"budget", ToString(budget->budget)},
           {"bucket_largest_batch", absl::StrJoin(largest, " ")}});
    }
  }

  absl::StatusOr<int> End(Lifecycle::Phase phase) {
    if (phase == Lifecycle::Phase::kDraining) Drain();
    if (lifecycle_.phase() == Lifecycle::Phase::kDeviceLost) {
      lifecycle_.WaitUntilIdle(After(RealClock().Now(), kLostGrace));
      // No destructor may run: it would call into the lost device's driver and hang or crash.
      std::_Exit(kDeviceLostExit);
    }
    Log(LogLevel::kInfo, "ended");
    return 0;
  }

  void Drain() {
    Log(LogLevel::kInfo, "draining");
    work_.Hurry();
    grpc_->SendAway();
    if (management_listener_ != nullptr) management_listener_->SendAway();
    const bool idle = lifecycle_.WaitUntilIdle(After(RealClock().Now(), std::chrono::seconds(options_.drain_seconds)));
    if (!idle && lifecycle_.phase() != Lifecycle::Phase::kDeviceLost) {
      Log(LogLevel::kWarning, "the time to drain is up: what still waits is refused");
      RefuseAllWaiting(catalog_.models(), "the server is ending");
      // A batch that runs is finished, unless the device is lost meanwhile.
      lifecycle_.WaitUntilIdle(kForever);
    }
  }

  Address GrpcAddress() const { return grpc_->address(); }
  Address HttpAddress() const { return {options_.http_address.host, http_->port()}; }

  const ServeOptions& options_;
  const ProgramHooks& hooks_;
  HostBudget host_;
  std::vector<std::unique_ptr<ServingDevice>> devices_;
  ModelRegistry registry_;
  QueueTotals queue_totals_;
  LengthRecords lengths_;
  ModelCatalog catalog_;
  LadderReport ladders_{catalog_, RealClock()};
  Lifecycle lifecycle_;
  ReadinessWatch readiness_;
  ServingObserver observer_;
  WorkSignal work_;
  DeadlineTimer deadlines_;
  CircuitBreaker breaker_;
  TailReport tail_;
  std::unique_ptr<WorkerPool> workers_;
  ModelControl control_;
  SerialExecutor management_;
  MemoryWatch memory_watch_{[] { return AvailableHostMemory(); }};
  FragmentRelease fragment_release_;
  std::unique_ptr<DegradationSteps> degradation_;
  std::unique_ptr<ResourceWatch> watch_;
  std::jthread watching_;  // ends before what it looks at
  // The watchdog looks on a thread of its own, at nothing that a driver is asked for: that may hang along with a run.
  RunWatchdog watchdog_;
  const std::vector<std::unique_ptr<ServingDevice>> no_devices_;
  std::unique_ptr<ResourceWatch> watchdog_watch_;
  std::jthread watching_runs_;
  InferenceService service_;
  ManagementService management_service_;
  std::unique_ptr<GrpcListener> grpc_;
  std::unique_ptr<GrpcListener> management_listener_;
  std::unique_ptr<HttpServer> http_;
  StopSignals signals_;
};

}  // namespace

int ServeCommand(const ServeOptions& options, const ProgramHooks& hooks) {
  SetLogSink(MakeLogSink(options.log_format, options.log_level, STDERR_FILENO));
  Serving serving(options, hooks);
  const absl::StatusOr<int> code = serving.Run();
  return code.ok() ? *code : ReportFault(code.status());
}

}  // namespace headroom
