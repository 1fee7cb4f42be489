#include "server/inference_service.h"

#include <absl/strings/str_cat.h>

#include "server/inference_call.h"
#include "server/status_mapping.h"

namespace headroom {
namespace {

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status = absl::OkStatus()) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

template <class Tensor, class Spec>
void Describe(const Spec& spec, bool has_batch_dimension, Tensor* tensor) {
  tensor->set_name(spec.name);
  tensor->set_datatype(NameOf(spec.type));
  if (has_batch_dimension) tensor->add_shape(-1);
  for (const std::int64_t dim : spec.dims) tensor->add_shape(dim);
}

}  // namespace

grpc::ServerUnaryReactor* InferenceService::ServerLive(grpc::CallbackServerContext* context,
                                                       const inference::ServerLiveRequest* /*request*/,
                                                       inference::ServerLiveResponse* response) {
  response->set_live(true);
  return Finish(context);
}

grpc::ServerUnaryReactor* InferenceService::ServerReady(grpc::CallbackServerContext* context,
                                                        const inference::ServerReadyRequest* /*request*/,
                                                        inference::ServerReadyResponse* response) {
  response->set_ready(parts_.lifecycle.serving());
  return Finish(context);
}

grpc::ServerUnaryReactor* InferenceService::ModelReady(grpc::CallbackServerContext* context,
                                                       const inference::ModelReadyRequest* request,
                                                       inference::ModelReadyResponse* response) {
  response->set_ready(parts_.lifecycle.serving() && parts_.catalog.Find(request->name(), request->version()).ok());
  return Finish(context);
}

grpc::ServerUnaryReactor* InferenceService::ServerMetadata(grpc::CallbackServerContext* context,
                                                           const inference::ServerMetadataRequest* /*request*/,
                                                           inference::ServerMetadataResponse* response) {
  response->set_name("headroom");
  response->set_version(HEADROOM_VERSION);
  response->add_extensions("model_configuration");
  response->add_extensions("schedule_policy");
  return Finish(context);
}

grpc::ServerUnaryReactor* InferenceService::ModelMetadata(grpc::CallbackServerContext* context,
                                                          const inference::ModelMetadataRequest* request,
                                                          inference::ModelMetadataResponse* response) {
  const auto entry = parts_.catalog.Find(request->name(), request->version());
  if (!entry.ok()) return Finish(context, entry.status());
  const ModelSpec& spec = *entry->model->spec;
  response->set_name(spec.name);
  response->add_versions(absl::StrCat(entry->model->version));
  response->set_platform(entry->config->platform());
  for (const InputSpec& input : spec.inputs) Describe(input, spec.has_batch_dimension(), response->add_inputs());
  for (const OutputSpec& output : spec.outputs) Describe(output, spec.has_batch_dimension(), response->add_outputs());
  return Finish(context);
}

grpc::ServerUnaryReactor* InferenceService::ModelConfig(grpc::CallbackServerContext* context,
                                                        const inference::ModelConfigRequest* request,
                                                        inference::ModelConfigResponse* response) {
  const auto entry = parts_.catalog.Find(request->name(), request->version());
  if (!entry.ok()) return Finish(context, entry.status());
  *response->mutable_config() = *entry->config;
  return Finish(context);
}

grpc::ServerUnaryReactor* InferenceService::ModelInfer(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  auto* const call = new InferenceCall(parts_, context, request, response);
  call->Start();
  return call;
}

grpc::ServerUnaryReactor* InferenceService::ModelStatistics(grpc::CallbackServerContext* context,
                                                            const inference::ModelStatisticsRequest* request,
                                                            inference::ModelStatisticsResponse* /*response*/) {
  const auto entry = parts_.catalog.Find(request->name(), request->version());
  if (!entry.ok()) return Finish(context, entry.status());
  return Finish(context, absl::UnimplementedError("this version of the server has no statistics extension; see its metrics page"));
}

grpc::ServerUnaryReactor* InferenceService::RepositoryModelLoad(grpc::CallbackServerContext* context,
                                                                const inference::RepositoryModelLoadRequest* /*request*/,
                                                                inference::RepositoryModelLoadResponse* /*response*/) {
  return Finish(context, ModelControlRefusal());
}

grpc::ServerUnaryReactor* InferenceService::RepositoryModelUnload(grpc::CallbackServerContext* context,
                                                                  const inference::RepositoryModelUnloadRequest* /*request*/,
                                                                  inference::RepositoryModelUnloadResponse* /*response*/) {
  return Finish(context, ModelControlRefusal());
}

absl::Status InferenceService::ModelControlRefusal() const {
  if (!parts_.model_control) {
    return absl::UnavailableError("models are not loaded or unloaded by clients: the server runs with --model-control off");
  }
  return absl::UnimplementedError("this version of the server does not load or unload models while it serves");
}

}  // namespace headroom
