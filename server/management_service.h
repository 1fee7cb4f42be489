// What a listener for management answers: the calls that change what is served, and those that tell about it. It infers nothing.
#pragma once

#include <grpcpp/grpcpp.h>

#include "proto/open_inference.grpc.pb.h"
#include "server/inference_service.h"

namespace headroom {

// Thread-safe. Calls that are not overridden here answer UNIMPLEMENTED: ModelInfer and its stream among them.
class ManagementService final : public inference::GRPCInferenceService::CallbackService {
 public:
  // With model control on. What the parts refer to outlives the service.
  explicit ManagementService(const ServiceParts& parts) : calls_(parts) {}

  grpc::ServerUnaryReactor* ServerLive(grpc::CallbackServerContext* context, const inference::ServerLiveRequest* request,
                                       inference::ServerLiveResponse* response) override {
    return calls_.ServerLive(context, request, response);
  }
  grpc::ServerUnaryReactor* ServerReady(grpc::CallbackServerContext* context, const inference::ServerReadyRequest* request,
                                        inference::ServerReadyResponse* response) override {
    return calls_.ServerReady(context, request, response);
  }
  grpc::ServerUnaryReactor* ModelReady(grpc::CallbackServerContext* context, const inference::ModelReadyRequest* request,
                                       inference::ModelReadyResponse* response) override {
    return calls_.ModelReady(context, request, response);
  }
  grpc::ServerUnaryReactor* ServerMetadata(grpc::CallbackServerContext* context, const inference::ServerMetadataRequest* request,
                                           inference::ServerMetadataResponse* response) override {
    return calls_.ServerMetadata(context, request, response);
  }
  grpc::ServerUnaryReactor* ModelMetadata(grpc::CallbackServerContext* context, const inference::ModelMetadataRequest* request,
                                          inference::ModelMetadataResponse* response) override {
    return calls_.ModelMetadata(context, request, response);
  }
  grpc::ServerUnaryReactor* ModelConfig(grpc::CallbackServerContext* context, const inference::ModelConfigRequest* request,
                                        inference::ModelConfigResponse* response) override {
    return calls_.ModelConfig(context, request, response);
  }
  grpc::ServerUnaryReactor* ModelStatistics(grpc::CallbackServerContext* context, const inference::ModelStatisticsRequest* request,
                                            inference::ModelStatisticsResponse* response) override {
    return calls_.ModelStatistics(context, request, response);
  }
  grpc::ServerUnaryReactor* RepositoryIndex(grpc::CallbackServerContext* context, const inference::RepositoryIndexRequest* request,
                                            inference::RepositoryIndexResponse* response) override {
    return calls_.RepositoryIndex(context, request, response);
  }
  grpc::ServerUnaryReactor* RepositoryModelLoad(grpc::CallbackServerContext* context,
                                                const inference::RepositoryModelLoadRequest* request,
                                                inference::RepositoryModelLoadResponse* response) override {
    return calls_.RepositoryModelLoad(context, request, response);
  }
  grpc::ServerUnaryReactor* RepositoryModelUnload(grpc::CallbackServerContext* context,
                                                  const inference::RepositoryModelUnloadRequest* request,
                                                  inference::RepositoryModelUnloadResponse* response) override {
    return calls_.RepositoryModelUnload(context, request, response);
  }

 private:
  InferenceService calls_;  // never registered with a server
};

}  // namespace headroom
