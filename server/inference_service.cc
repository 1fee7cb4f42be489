#include "server/inference_service.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "base/wall_clock.h"
#include "server/client_text.h"
#include "server/inference_call.h"
#include "server/inference_stream.h"
#include "server/model_statistics.h"
#include "server/status_mapping.h"

namespace headroom {
namespace {

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status = absl::OkStatus()) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// A load or unload under way. Deletes itself when gRPC has done with it; a drain waits for that.
class ManagementCall final : public grpc::ServerUnaryReactor {
 public:
  explicit ManagementCall(Admittance admittance) : admittance_(std::move(admittance)) {}
  void OnDone() override { delete this; }

 private:
  const Admittance admittance_;
};

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
  if (parts_.model_control) response->add_extensions("model_repository");
  response->add_extensions("schedule_policy");
  response->add_extensions("statistics");
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

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* InferenceService::ModelStreamInfer(
    grpc::CallbackServerContext* context) {
  auto* const stream = new InferenceStream(parts_, context, parts_.limits.max_stream_calls);
  stream->Start();
  return stream;
}

grpc::ServerUnaryReactor* InferenceService::ModelStatistics(grpc::CallbackServerContext* context,
                                                            const inference::ModelStatisticsRequest* request,
                                                            inference::ModelStatisticsResponse* response) {
  std::vector<CatalogEntry> entries;
  if (request->name().empty()) {
    entries = parts_.catalog.Served();
  } else {
    auto entry = parts_.catalog.Find(request->name(), request->version());
    if (!entry.ok()) return Finish(context, entry.status());
    entries.push_back(*std::move(entry));
  }
  for (const CatalogEntry& entry : entries) {
    const std::string& name = entry.model->spec->name;
    const ModelTotals totals = parts_.totals(name, entry.model->version);
    std::optional<std::int64_t> last_answer;
    if (totals.succeeded.count > 0) last_answer = UnixMilliseconds(totals.last_answer);
    *response->add_model_stats() = StatisticsOf(name, entry.model->version, totals, last_answer);
  }
  return Finish(context);
}

grpc::ServerUnaryReactor* InferenceService::RepositoryIndex(grpc::CallbackServerContext* context,
                                                            const inference::RepositoryIndexRequest* request,
                                                            inference::RepositoryIndexResponse* response) {
  const auto index = parts_.control.Index();
  if (!index.ok()) return Finish(context, absl::UnavailableError("the model repository cannot be read"));
  for (const IndexEntry& entry : *index) {
    if (request->ready() && !entry.ready) continue;
    auto* const model = response->add_models();
    model->set_name(entry.name);
    if (entry.version > 0) model->set_version(absl::StrCat(entry.version));
    model->set_state(entry.ready ? "READY" : "UNAVAILABLE");
    model->set_reason(entry.reason);
  }
  return Finish(context);
}

grpc::ServerUnaryReactor* InferenceService::RepositoryModelLoad(grpc::CallbackServerContext* context,
                                                                const inference::RepositoryModelLoadRequest* request,
                                                                inference::RepositoryModelLoadResponse* /*response*/) {
  if (parts_.model_control && !request->parameters().empty()) {
    return Finish(context, absl::InvalidArgumentError(absl::StrCat(
                               "parameter ", Quoted(request->parameters().begin()->first),
                               " is not taken: a model is loaded from the repository, with the configuration that lies there")));
  }
  return Manage(context, [name = request->model_name()](ModelControl& control) { return control.Load(name); });
}

grpc::ServerUnaryReactor* InferenceService::RepositoryModelUnload(grpc::CallbackServerContext* context,
                                                                  const inference::RepositoryModelUnloadRequest* request,
                                                                  inference::RepositoryModelUnloadResponse* /*response*/) {
  return Manage(context, [name = request->model_name()](ModelControl& control) { return control.Unload(name); });
}

grpc::ServerUnaryReactor* InferenceService::Manage(grpc::CallbackServerContext* context,
                                                   std::function<absl::Status(ModelControl&)> change) {
  if (!parts_.model_control) return Finish(context, absl::UnavailableError(parts_.control_refusal));
  auto admittance = parts_.lifecycle.Admit();
  if (!admittance.ok()) return Finish(context, admittance.status());
  auto* const call = new ManagementCall(*std::move(admittance));
  parts_.management.Do([this, call, change = std::move(change)] {
    absl::Status status = change(parts_.control);
    // A stop ends a load early.
    if (absl::IsCancelled(status)) status = absl::UnavailableError("the server is ending");
    call->Finish(ToGrpc(status));
  });
  return call;
}

}  // namespace headroom
