// What is fuzzed: for each kind of bytes that come from outside, a function that takes any of them through our code and holds what
// comes out against the promises of the headers. A promise that is broken ends the process.
#pragma once

#include <string_view>

namespace headroom {

// A ModelInferRequest message: scanned, parsed, decoded to rows, and where it is accepted put into padded batches, taken apart
// again and answered. Takes the model that the message names where there is one of that name, another one else.
void FuzzRequestDecode(std::string_view bytes);

// The text of a config.pbtxt.
void FuzzModelConfig(std::string_view bytes);

// What a client sends to the HTTP port, whole, on a connection of its own to a server that goes on from call to call.
void FuzzHttp(std::string_view bytes);

// A CSV file of lengths. A first line "mix:NAME=WEIGHT,..." says how its columns are mixed.
void FuzzTraffic(std::string_view bytes);

// Ends the process where a promise is broken; `promise` says which.
void Require(bool kept, const char* promise);

}  // namespace headroom
