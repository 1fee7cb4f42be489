#include "server/tail_report.h"

#include "base/log.h"

namespace headroom {

void TailReport::Tell(const std::string& model, const TailRows& rows) {
  if (rows.total() == 0) return;
  if (rows.truncated > 0) observer_.TailRows(model, TailTreatment::kTruncate, rows.truncated);
  if (rows.solo > 0) observer_.TailRows(model, TailTreatment::kSolo, rows.solo);
  if (rows.refused > 0) observer_.TailRows(model, TailTreatment::kRefused, rows.refused);
  if (const auto held_back = log_.Pass(clock_.Now())) {
    Log(LogLevel::kWarning, "rows beyond the last bucket",
        {{"model", model},
         {"truncated", rows.truncated},
         {"solo", rows.solo},
         {"refused", rows.refused},
         {"longest", rows.longest},
         {"requests_since_last_line", *held_back}});
  }
}

}  // namespace headroom
