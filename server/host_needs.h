// What a request takes of the host's memory, told from its bytes before they are parsed.
#pragma once

#include "base/bytes.h"
#include "runtime/model_spec.h"
#include "server/message_scan.h"
#include "server/options.h"

namespace headroom {

struct HostNeeds {
  Bytes request{0};  // while the message is parsed: its bytes, what they become, and what is kept for each row
  Bytes reply{0};    // the outputs, and the message that they are copied into

  Bytes total() const { return request + reply; }
};

// Upper bounds, but for a request that decoding will refuse for its shape: of that, the part that it costs until then.
//
//   request = message + parsed message + 24 × typed contents + 32 × loose + 256 × (inputs + outputs + rows) + 16 KiB
//   reply   = 2 × (bytes of the outputs that are asked for, along a sequence axis as long as the client's inputs)
//
// A parsed message holds raw contents once. One byte of typed contents may become a number of 8 bytes, in an array that has grown
// to twice what it holds, beside the dense copy: 24. Loose is what stands in parameters and shapes: an empty group of two bytes, in
// a parameter, becomes an entry and a set of fields, 32 times as much. A tensor costs its message, a row its length and placement,
// its place in the queue, and its part of the planner's view. Outputs are copied once, when the reply is made into bytes.
HostNeeds NeedsOf(const RequestEnvelope& envelope, Bytes message_size, const ModelSpec& spec, const RequestLimits& limits);

}  // namespace headroom
