// What a gRPC call tells of the inferences that come by it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "server/inference.h"

namespace headroom {

// The deadline and, where `caller_key` names a metadata entry that the call has, the caller, which lives as long as the context.
InferenceOrigin OriginOf(const grpc::CallbackServerContext& context, TimePoint now, const std::string& caller_key);

}  // namespace headroom
