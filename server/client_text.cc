#include "server/client_text.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace headroom {

std::string Quoted(const std::string& text) {
  constexpr std::size_t kLongest = 64;
  if (text.size() <= kLongest) return absl::StrCat("'", absl::CHexEscape(text), "'");
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kLongest)), "…'");
}

}  // namespace headroom
