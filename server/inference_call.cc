#include "server/inference_call.h"

#include <absl/strings/str_cat.h>

#include "server/call_origin.h"
#include "server/status_mapping.h"

namespace headroom {

InferenceCall::InferenceCall(const ServiceParts& parts, grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                             grpc::ByteBuffer* response)
    : context_(context),
      inference_(parts, OriginOf(*context, parts.clock.Now(), parts.breaker.caller_key()),
                 // gRPC's own, non-const object, which may lose its bytes once they are parsed.
                 const_cast<grpc::ByteBuffer&>(*request), *response, [this](const InferenceEnd& end) { Answer(end); }) {}

void InferenceCall::Answer(const InferenceEnd& end) {
  if (end.retry_after) {
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(*end.retry_after).count();
    context_->AddTrailingMetadata(kRetryPushback, absl::StrCat(milliseconds));
  }
  Finish(ToGrpc(end.status));
}

}  // namespace headroom
