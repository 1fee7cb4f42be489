#include "runtime/torch/torch_error.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <string_view>

namespace headroom {
namespace {

constexpr std::size_t kLongestLine = 300;

// TorchScript rethrows what an operator threw as a std::runtime_error, and cuBLAS and the CUDA runtime allocate past libtorch's
// allocator: then the words are all there is. A handle that cannot be made is in practice a device that is full.
constexpr std::array kOutOfMemoryWords = {"CPU out of memory:",
                                          "CUDA out of memory",
                                          "CUDA error: out of memory",
                                          "CUBLAS_STATUS_ALLOC_FAILED",
                                          "CUBLAS_STATUS_NOT_INITIALIZED",
                                          "CUDNN_STATUS_ALLOC_FAILED",
                                          "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
                                          "DefaultCPUAllocator: can't allocate memory"};

bool SaysOutOfMemory(const std::string& text) {
  return std::any_of(kOutOfMemoryWords.begin(), kOutOfMemoryWords.end(),
                     [&](const char* words) { return text.find(words) != std::string::npos; });
}

TorchFailure Describe(const std::string& text) { return {.text = ErrorLine(text), .out_of_memory = SaysOutOfMemory(text)}; }

// A TorchScript traceback shows source code around each "<--- HERE"; what went wrong follows the last one, as in Python:
// "RuntimeError: …". Elsewhere it is the first line.
std::string MessageLine(const std::string& text) {
  std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (const std::size_t mark = text.rfind("<--- HERE"); mark != std::string::npos) {
    const std::size_t error = text.find("Error: ", mark);
    if (error != std::string::npos) begin = text.rfind('\n', error) + 1;
  }
  return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

std::string WithoutPaths(const std::string& line) {
  constexpr std::string_view kBefore = " \"'(=<[";
  constexpr std::string_view kEnd = " \"',;:)>]";
  std::string kept;
  for (std::size_t i = 0; i < line.size();) {
    const bool starts = i == 0 || kBefore.find(line[i - 1]) != std::string_view::npos;
    if (starts && line[i] == '/' && i + 1 < line.size() && kEnd.find(line[i + 1]) == std::string_view::npos) {
      kept += "(path)";
      i = std::min(line.find_first_of(kEnd, i), line.size());
    } else {
      kept += line[i++];
    }
  }
  return kept;
}

}  // namespace

std::string ErrorLine(const std::string& text) {
  std::string line = WithoutPaths(MessageLine(text));
  // Control characters could forge a line of the log.
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7F'; }, ' ');
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  line = line.substr(begin, kLongestLine);
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line.empty() ? "no reason given" : line;
}

std::optional<TorchFailure> CatchFailure(const std::function<void()>& body) {
  try {
    body();
    return std::nullopt;
  } catch (const c10::OutOfMemoryError& error) {
    return TorchFailure{.text = ErrorLine(error.what_without_backtrace()), .out_of_memory = true};
  } catch (const c10::Error& error) {
    return Describe(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return TorchFailure{.text = "host memory is exhausted", .out_of_memory = true};
  } catch (const std::exception& error) {
    return Describe(error.what());
  } catch (...) {
    return TorchFailure{.text = "an exception of unknown type"};
  }
}

}  // namespace headroom
