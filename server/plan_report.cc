#include "server/plan_report.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/ladder_report.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCannotKnow =
    "values and speed, since nothing is computed; nor what libraries take beside the allocator (the CUDA context, "
    "kernels, cuBLAS's and cuDNN's internals), for which an allowance is set aside";

double RowsPerSecond(const PlanRow& row) {
  return row.latency > Duration::zero() ? static_cast<double>(row.largest_batch) / Seconds(row.latency) : 0;
}

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json AsJson(const PlanRow& row, bool computes) {
  Json json = {{"bucket", row.bucket},
               {"largest_batch", row.largest_batch},
               {"estimated_peak_bytes", row.estimated.count},
               {"measured_peak_bytes", row.measured.count},
               {"allocated_peak_bytes", row.allocated ? Json(row.allocated->count) : Json(nullptr)},
               {"latency_us", nullptr},
               {"rows_per_second", nullptr}};
  if (computes) {
    json["latency_us"] = Microseconds(row.latency);
    json["rows_per_second"] = RowsPerSecond(row);
  }
  return json;
}

Json AsJson(const std::vector<std::int64_t>& buckets, const LadderCost& cost) {
  return {{"buckets", buckets},
          {"useful_tokens", cost.useful_tokens},
          {"computed_tokens", cost.computed_tokens},
          {"useful_token_share", cost.useful_share()}};
}

Json AsJson(const LadderAdvice& ladder) {
  Json json = {{"present", AsJson(ladder.buckets, ladder.cost)},
               {"proposed", AsJson(ladder.proposed, ladder.proposed_cost)},
               {"saves_share", ladder.saves()}};
  json["proposed"]["config"] = LadderAsConfig(ladder.proposed);
  return json;
}

Json AsJson(const TrafficPlan& traffic) {
  Json classes = Json::array();
  for (std::size_t i = 0; i < traffic.mix.classes.size(); ++i) {
    const TrafficClass& of = traffic.mix.classes[i];
    classes.push_back({{"from", of.from},
                       {"up_to", of.up_to > 0 ? Json(of.up_to) : Json(nullptr)},
                       {"treatment", NameOf(of.treatment)},
                       {"bucket", of.bucket > 0 ? Json(of.bucket) : Json(nullptr)},
                       {"share", of.share},
                       {"largest_batch", of.largest_batch},
                       {"full_batch_bytes", traffic.full_batches[i].count}});
  }
  Json percentiles = Json::array();
  for (const PercentilePlan& at : traffic.percentiles) {
    percentiles.push_back({{"percentile", at.percentile},
                           {"length", at.length},
                           {"refused", !at.shape.has_value()},
                           {"rows", at.shape ? Json(at.shape->rows) : Json(nullptr)},
                           {"padded_length", at.shape ? Json(at.shape->length) : Json(nullptr)},
                           {"needs_bytes", at.shape ? Json(at.needs.count) : Json(nullptr)},
                           {"largest_batch", at.largest_batch}});
  }
  return {{"padding", traffic.padding},
          {"window_rows", kWindowRows},
          {"classes", classes},
          {"refused_share", traffic.mix.refused_share},
          {"unfit_share", traffic.mix.unfit_share},
          {"useful_token_share", traffic.mix.useful_share},
          {"rows_per_second", OrNull(traffic.rows_per_second)},
          {"percentiles", percentiles},
          {"ladder", traffic.ladder ? AsJson(*traffic.ladder) : Json(nullptr)}};
}

Json AsJson(const LengthCurve& curve, bool computes) {
  Json points = Json::array();
  for (const Measurement& point : curve.points) {
    points.push_back({{"rows", point.rows},
                      {"peak_bytes", point.peak.count},
                      {"latency_us", computes ? Json(1e6 * Seconds(point.latency)) : Json(nullptr)}});
  }
  return {{"length", curve.length},
          {"smooth_below", curve.smooth_below},
          {"failed_rows", curve.failed_rows},
          {"failed_at_least_bytes", curve.failed_at_least.count},
          {"points", points}};
}

Json AsJson(const InstancePlan& plan, Bytes allowance) {
  Json json = {{"device", plan.device}, {"computes", plan.computes}};
  if (plan.card) {
    json["card"] = {{"name", plan.card->name},
                    {"memory_bytes", plan.card->memory.count},
                    {"capability", plan.card->capability},
                    {"allowance_bytes", allowance.count}};
  }
  json["fits"] = plan.fits();
  json["reason"] = plan.unfit.empty() ? Json(nullptr) : Json(plan.unfit);
  json["weights_bytes"] = plan.weights.count;
  json["at_rest_bytes"] = plan.at_rest.count;
  json["budget_bytes"] = plan.budget.count;
  json["buckets"] = Json::array();
  for (const PlanRow& row : plan.rows) json["buckets"].push_back(AsJson(row, plan.computes));
  if (plan.traffic) json["traffic"] = AsJson(*plan.traffic);
  json["calibration"] = Json::array();
  for (const LengthCurve& curve : plan.calibration) json["calibration"].push_back(AsJson(curve, plan.computes));
  return json;
}

std::string LengthRange(const TrafficClass& of) {
  return of.up_to > 0 ? absl::StrCat(of.from, " to ", of.up_to) : absl::StrCat("from ", of.from);
}

std::string Percent(double share) { return absl::StrFormat("%.2f %%", 100 * share); }

// A distribution's tokens are those of one row.
std::string TokensText(const LadderCost& cost) {
  return cost.computed_tokens < 1e5 ? absl::StrFormat("%.2f", cost.computed_tokens) : absl::StrFormat("%.0f", cost.computed_tokens);
}

void AppendLadder(const LadderAdvice& ladder, std::string& text) {
  absl::StrAppend(&text, "  padded to the bucket: ", TokensText(ladder.cost), " tokens computed, ",
                  Percent(ladder.cost.useful_share()), " of them useful\n");
  if (ladder.proposed == ladder.buckets) {
    absl::StrAppend(&text, "  no other ladder of so many buckets computes fewer\n");
    return;
  }
  absl::StrAppend(&text, "  the best ladder of at most so many buckets: ", TokensText(ladder.proposed_cost), " tokens, ",
                  Percent(ladder.proposed_cost.useful_share()), " useful, ", Percent(ladder.saves()), " fewer; for config.pbtxt:\n",
                  "    ", LadderAsConfig(ladder.proposed), "\n");
}

void AppendTraffic(const TrafficPlan& traffic, std::string& text) {
  absl::StrAppend(&text, "  lengths            share  treatment   largest batch  a full batch takes\n");
  for (std::size_t i = 0; i < traffic.mix.classes.size(); ++i) {
    const TrafficClass& of = traffic.mix.classes[i];
    absl::StrAppendFormat(&text, "  %-14s  %8s  %-9s", LengthRange(of), Percent(of.share), NameOf(of.treatment));
    if (of.treatment == Treatment::kRefused) {
      absl::StrAppend(&text, "\n");
    } else if (of.largest_batch == 0) {
      absl::StrAppend(&text, "    nothing fits\n");
    } else {
      absl::StrAppendFormat(&text, "   %13d  %18s\n", of.largest_batch, ToString(traffic.full_batches[i]));
    }
  }
  if (traffic.mix.unfit_share > 0) {
    absl::StrAppend(&text, "  ", Percent(traffic.mix.unfit_share), " of the rows do not fit and are refused\n");
  }
  absl::StrAppendFormat(&text, "  padded %s: %s of the computed tokens are useful, with %d rows waiting\n", traffic.padding,
                        Percent(traffic.mix.useful_share), kWindowRows);
  if (traffic.rows_per_second) {
    absl::StrAppendFormat(&text, "  %.1f rows/s by one worker that has the machine to itself\n", *traffic.rows_per_second);
  }
  if (traffic.ladder) AppendLadder(*traffic.ladder, text);
  absl::StrAppend(&text, "  percentile   length   padded   rows    they take together   largest batch\n");
  for (const PercentilePlan& at : traffic.percentiles) {
    absl::StrAppendFormat(&text, "  %10g  %7d", at.percentile, at.length);
    if (at.shape) {
      absl::StrAppendFormat(&text, "  %7d  %5d  %20s   %13d\n", at.shape->length, at.shape->rows, ToString(at.needs),
                            at.largest_batch);
    } else {
      absl::StrAppend(&text, "  refused\n");
    }
  }
}

void AppendRows(const InstancePlan& plan, std::string& text) {
  const char* const speed = plan.computes ? "     latency   rows/s" : "";
  absl::StrAppendFormat(&text, "  bucket  largest batch  estimated peak   measured peak      in tensors%s\n", speed);
  for (const PlanRow& row : plan.rows) {
    if (row.largest_batch == 0) {
      absl::StrAppendFormat(&text, "  %6d  nothing fits\n", row.bucket);
      continue;
    }
    absl::StrAppendFormat(&text, "  %6d  %13d  %14s  %14s  %14s", row.bucket, row.largest_batch, ToString(row.estimated),
                          ToString(row.measured), row.allocated ? ToString(*row.allocated) : "unknown");
    if (plan.computes) absl::StrAppendFormat(&text, "  %7.2f ms  %7.1f", Seconds(row.latency) * 1000, RowsPerSecond(row));
    text += '\n';
  }
}

void Append(const InstancePlan& plan, std::string& text) {
  absl::StrAppend(&text, plan.model, " version ", plan.version, " on ");
  if (plan.card) {
    absl::StrAppend(&text, plan.card->name, " (", ToString(plan.card->memory), ", capability ", plan.card->capability, ")");
  } else {
    absl::StrAppend(&text, plan.device);
  }
  if (!plan.unfit.empty()) {
    absl::StrAppend(&text, ": does not fit: ", plan.unfit, "\n");
    return;
  }
  absl::StrAppend(&text, ": batches may hold ", ToString(plan.budget), " together\n");
  absl::StrAppend(&text, "  weights ", ToString(plan.weights), "; at rest ", ToString(plan.at_rest),
                  " in tensors, with other models and workspaces\n");
  if (!plan.computes && !plan.card) absl::StrAppend(&text, "  (a dry card: memory is real, times mean nothing)\n");
  AppendRows(plan, text);
  if (plan.traffic) AppendTraffic(*plan.traffic, text);
}

}  // namespace

bool InstancePlan::fits() const {
  return unfit.empty() && std::all_of(rows.begin(), rows.end(), [](const PlanRow& row) { return row.largest_batch > 0; });
}

std::string AsJson(const PlanReport& report) {
  Json models = Json::array();
  for (const InstancePlan& plan : report.plans) {
    auto model = std::find_if(models.begin(), models.end(), [&](const Json& m) { return m["name"] == plan.model; });
    if (model == models.end()) {
      models.push_back({{"name", plan.model}, {"version", absl::StrCat(plan.version)}, {"devices", Json::array()}});
      model = models.end() - 1;
    }
    (*model)["devices"].push_back(AsJson(plan, report.card_allowance));
  }
  Json json = {{"models", models}};
  const bool cards = std::any_of(report.plans.begin(), report.plans.end(), [](const InstancePlan& plan) { return plan.card; });
  if (cards) json["cannot_know"] = kCannotKnow;
  if (report.traffic) {
    json["traffic"] = {{"file", report.traffic_file},
                       {"form", report.traffic->form},
                       {"rows", report.traffic->form == "quantiles" ? Json(nullptr) : Json(report.traffic->total)},
                       {"columns", report.traffic->columns}};
  }
  // A path need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string AsTable(const PlanReport& report) {
  std::string text;
  const bool cards = std::any_of(report.plans.begin(), report.plans.end(), [](const InstancePlan& plan) { return plan.card; });
  if (cards) {
    absl::StrAppend(&text, "Planned without a GPU, by PyTorch's own allocator on a stand-in for CUDA.\nIt cannot know ",
                    kCannotKnow, ":\n", ToString(report.card_allowance), " a card, which is an assumption (--card-allowance).\n\n");
  }
  if (report.traffic) {
    absl::StrAppend(&text, "traffic of ", report.traffic_file, ", ", report.traffic->form);
    if (report.traffic->form == "quantiles") {
      absl::StrAppend(&text, " of ", absl::StrJoin(report.traffic->columns, ", "), "\n\n");
    } else {
      absl::StrAppendFormat(&text, " of %.0f rows\n\n", report.traffic->total);
    }
  }
  for (const InstancePlan& plan : report.plans) Append(plan, text);
  return text;
}

}  // namespace headroom
