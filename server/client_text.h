// What a client sent, made fit to be quoted in an error text.
#pragma once

#include <string>

namespace headroom {

// 'text' in quotes, control characters and quotes escaped, cut after 64 bytes.
std::string Quoted(const std::string& text);

}  // namespace headroom
