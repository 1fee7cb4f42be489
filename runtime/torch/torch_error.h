// Where libtorch's exceptions end: what was thrown becomes plain data.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace headroom {

struct TorchFailure {
  std::string text;            // one line: what went wrong, without libtorch's traces and without any path
  bool out_of_memory = false;  // by its type or its words; an allocator's own flag knows more
};

// Runs `body`. Where it throws, tells what; the exception, and with it every tensor of `body`, is gone on return.
std::optional<TorchFailure> CatchFailure(const std::function<void()>& body);

// The line of an error's text that says what went wrong: TorchScript's traceback is skipped, the text is cut at 300 characters, and
// absolute paths (of this machine or of that where libtorch was built) are left out.
std::string ErrorLine(const std::string& text);

}  // namespace headroom
