// The Open Inference Protocol's calls, on gRPC's callback API.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "batching/batch_observer.h"
#include "batching/batcher.h"
#include "batching/deadline_timer.h"
#include "memory/host_budget.h"
#include "metrics/model_totals.h"
#include "proto/open_inference.grpc.pb.h"
#include "server/circuit_breaker.h"
#include "server/lifecycle.h"
#include "server/model_catalog.h"
#include "server/model_control.h"
#include "server/options.h"
#include "server/serial_executor.h"
#include "server/tail_report.h"

namespace headroom {

// What the calls work with; everything outlives the service.
struct ServiceParts {
  Lifecycle& lifecycle;
  const ModelCatalog& catalog;
  BatchObserver& observer;
  WorkSignal& work;
  DeadlineTimer& deadlines;
  HostBudget& host;
  CircuitBreaker& breaker;
  TailReport& tail;
  Clock& clock;
  RequestLimits limits;
  QueueOptions queue;
  bool model_control = false;
  ModelControl& control;
  SerialExecutor& management;                                                         // where loads and unloads are done
  std::function<ModelTotals(const std::string& model, std::int64_t version)> totals;  // what has been counted
  // Why not, without model_control.
  const char* control_refusal = "models are not loaded or unloaded by clients: the server runs with --model-control off";
};

// ModelInfer and ModelStreamInfer are handed the bytes of their messages: gRPC would answer what does not parse with UNIMPLEMENTED.
// Method by method, since a stream of bytes cannot override a stream of messages.
using Protocol = inference::GRPCInferenceService;
using LivenessMethods = Protocol::WithCallbackMethod_ServerLive<Protocol::WithCallbackMethod_ServerReady<
    Protocol::WithCallbackMethod_ModelReady<Protocol::WithCallbackMethod_ServerMetadata<Protocol::Service>>>>;
using ModelMethods = Protocol::WithCallbackMethod_ModelMetadata<
    Protocol::WithCallbackMethod_ModelConfig<Protocol::WithCallbackMethod_ModelStatistics<LivenessMethods>>>;
using RepositoryMethods = Protocol::WithCallbackMethod_RepositoryIndex<
    Protocol::WithCallbackMethod_RepositoryModelLoad<Protocol::WithCallbackMethod_RepositoryModelUnload<ModelMethods>>>;
using InferenceMethods =
    Protocol::WithRawCallbackMethod_ModelInfer<Protocol::WithRawCallbackMethod_ModelStreamInfer<RepositoryMethods>>;

// Thread-safe.
class InferenceService final : public InferenceMethods {
 public:
  explicit InferenceService(ServiceParts parts) : parts_(std::move(parts)) {}

  grpc::ServerUnaryReactor* ServerLive(grpc::CallbackServerContext* context, const inference::ServerLiveRequest* request,
                                       inference::ServerLiveResponse* response) override;
  grpc::ServerUnaryReactor* ServerReady(grpc::CallbackServerContext* context, const inference::ServerReadyRequest* request,
                                        inference::ServerReadyResponse* response) override;
  grpc::ServerUnaryReactor* ModelReady(grpc::CallbackServerContext* context, const inference::ModelReadyRequest* request,
                                       inference::ModelReadyResponse* response) override;
  grpc::ServerUnaryReactor* ServerMetadata(grpc::CallbackServerContext* context, const inference::ServerMetadataRequest* request,
                                           inference::ServerMetadataResponse* response) override;
  grpc::ServerUnaryReactor* ModelMetadata(grpc::CallbackServerContext* context, const inference::ModelMetadataRequest* request,
                                          inference::ModelMetadataResponse* response) override;
  grpc::ServerUnaryReactor* ModelConfig(grpc::CallbackServerContext* context, const inference::ModelConfigRequest* request,
                                        inference::ModelConfigResponse* response) override;
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ModelStreamInfer(grpc::CallbackServerContext* context) override;
  // Of one model, or of all that are served. NOT_FOUND for what is not.
  grpc::ServerUnaryReactor* ModelStatistics(grpc::CallbackServerContext* context, const inference::ModelStatisticsRequest* request,
                                            inference::ModelStatisticsResponse* response) override;
  grpc::ServerUnaryReactor* RepositoryIndex(grpc::CallbackServerContext* context, const inference::RepositoryIndexRequest* request,
                                            inference::RepositoryIndexResponse* response) override;
  // Load and Unload: UNAVAILABLE with model control off. Answered when it is done.
  grpc::ServerUnaryReactor* RepositoryModelLoad(grpc::CallbackServerContext* context,
                                                const inference::RepositoryModelLoadRequest* request,
                                                inference::RepositoryModelLoadResponse* response) override;
  grpc::ServerUnaryReactor* RepositoryModelUnload(grpc::CallbackServerContext* context,
                                                  const inference::RepositoryModelUnloadRequest* request,
                                                  inference::RepositoryModelUnloadResponse* response) override;

 private:
  grpc::ServerUnaryReactor* Manage(grpc::CallbackServerContext* context, std::function<absl::Status(ModelControl&)> change);

  const ServiceParts parts_;
};

}  // namespace headroom
