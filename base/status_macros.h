// Early return on a status that is not OK.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <utility>

#define RETURN_IF_ERROR(expression)                                         \
  do {                                                                      \
    if (absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

// ASSIGN_OR_RETURN(auto value, MakeValue());
#define ASSIGN_OR_RETURN(declaration, expression) ASSIGN_OR_RETURN_(HEADROOM_CONCAT(or_, __LINE__), declaration, expression)
// NOLINTBEGIN(bugprone-macro-parentheses): a declaration and a name cannot stand in parentheses.
#define ASSIGN_OR_RETURN_(holder, declaration, expression) \
  auto holder = (expression);                              \
  if (!holder.ok()) return std::move(holder).status();     \
  declaration = std::move(holder).value()
// NOLINTEND(bugprone-macro-parentheses)

#define HEADROOM_CONCAT(a, b) HEADROOM_CONCAT_(a, b)
#define HEADROOM_CONCAT_(a, b) a##b
