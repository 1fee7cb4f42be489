#include "runtime/torch/descriptor_reader.h"

#include <unistd.h>

#include <cerrno>

namespace headroom {

std::size_t DescriptorReader::read(std::uint64_t position, void* to, std::size_t count, const char* /*what*/) const {
  std::size_t done = 0;
  while (done < count) {
    const ssize_t got = pread(descriptor_, static_cast<char*>(to) + done, count - done, static_cast<off_t>(position + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

}  // namespace headroom
