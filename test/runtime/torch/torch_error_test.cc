#include "runtime/torch/torch_error.h"

#include <catch2/catch.hpp>
#include <new>
#include <stdexcept>
#include <vector>

namespace headroom {
namespace {

TEST_CASE("an error's line is what went wrong, without traces and paths", "[torch_error]") {
  struct Case {
    std::string text;
    std::string line;
  };
  const std::vector<Case> cases = {
      {"index out of range in self", "index out of range in self"},
      {"\nfirst line\nException raised from", "first line"},
      {"", "no reason given"},
      {"open file failed: No such file, file path: /srv/models/a/model.pt", "open file failed: No such file, file path: (path)"},
      {"assert at \"/pytorch/torch/ir.cpp\":12, please", "assert at \"(path)\":12, please"},
      {"a/b is 3 / 4", "a/b is 3 / 4"},
      {"a forged\tline\x1B[31m", "a forged line [31m"},
      {"The following operation failed in the TorchScript interpreter.\n"
       "Traceback of TorchScript, serialized code (most recent call last):\n"
       "  File \"code/__torch__.py\", line 3, in forward\n    return torch.add(x, y)\n           ~~~~~~~~~ <--- HERE\n\n"
       "Traceback of TorchScript, original code (most recent call last):\n  File \"model.py\", line 2, in forward\n"
       "def forward(self, x, y):\n    return x + y\n           ~~~~~ <--- HERE\n"
       "RuntimeError: The size of tensor a (3) must match\n",
       "RuntimeError: The size of tensor a (3) must match"},
  };
  for (const Case& c : cases) CHECK(ErrorLine(c.text) == c.line);
  CHECK(ErrorLine(std::string(5000, 'x')).size() == 300);
}

TEST_CASE("out of memory is known by its type or its words", "[torch_error]") {
  CHECK(CatchFailure([] { throw std::bad_alloc(); })->out_of_memory);
  CHECK(CatchFailure([] { throw std::runtime_error("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED"); })->out_of_memory);
  CHECK_FALSE(CatchFailure([] { throw std::runtime_error("index out of range"); })->out_of_memory);
  CHECK(CatchFailure([] { throw 1; })->text == "an exception of unknown type");
  CHECK_FALSE(CatchFailure([] {}).has_value());
}

}  // namespace
}  // namespace headroom
