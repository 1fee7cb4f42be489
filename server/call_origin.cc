#include "server/call_origin.h"

namespace headroom {
namespace {

// The call's deadline on our clock. The one place where gRPC's time is read.
TimePoint DeadlineOf(const grpc::CallbackServerContext& context, TimePoint now) {
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) return kForever;
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  if (left.tv_sec > std::chrono::duration_cast<std::chrono::seconds>(Duration::max()).count() / 2) return kForever;
  return After(now, std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec));
}

std::string_view CallerOf(const grpc::CallbackServerContext& context, const std::string& key) {
  if (key.empty()) return {};
  const auto& metadata = context.client_metadata();
  const auto caller = metadata.find(key);
  if (caller == metadata.end()) return {};
  return {caller->second.data(), caller->second.size()};
}

}  // namespace

InferenceOrigin OriginOf(const grpc::CallbackServerContext& context, TimePoint now, const std::string& caller_key) {
  return {now, DeadlineOf(context, now), CallerOf(context, caller_key)};
}

}  // namespace headroom
