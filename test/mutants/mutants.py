"""The deliberate bugs: what each breaks, where, and the tests of headroom_core_tests that must find it.

A mutant is one or more exact replacements. A text that is there twice, or not any more, is an error: what the mutant is about has
changed, and the mutant has to change with it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    name: str
    breaks: str
    file: str
    changes: tuple[tuple[str, str], ...]  # (what stands there, what is to stand there)
    tests: str  # Catch2's filter: the tests that must find it


def mutant(name: str, breaks: str, file: str, old: str, new: str, tests: str) -> Mutant:
    return Mutant(name, breaks, file, ((old, new),), tests)


MUTANTS = (
    mutant(
        "order_not_restored",
        "answers go back by their place in the batch, not by the row that they belong to",
        "batching/collator.cc",
        "CopyRow(layout, from, shape.length, queued.request->OutputRow(i, queued.index), queued.request->output_length(),",
        "CopyRow(layout, from, shape.length,\n"
        "                queued.request->OutputRow(i, static_cast<std::size_t>(&queued - rows.data()) % queued.request->rows().size()),\n"
        "                queued.request->output_length(),",
        "[collator],[batcher]",
    ),
    mutant(
        "mask_ignored",
        "the mask says that padding is text",
        "batching/collator.cc",
        "const Element padding(input.type, is_mask ? 0 : input.pad_value);",
        "const Element padding(input.type, is_mask ? 1 : input.pad_value);",
        "[collator],[batcher]",
    ),
    mutant(
        "expired_row_planned",
        "a row whose time is up is put into a batch",
        "batching/batch_planner.cc",
        "if (row.deadline <= now_) {",
        "if (row.deadline < TimePoint{}) {",
        "[planner],[batcher]",
    ),
    mutant(
        "expired_row_starts",
        "a row whose time ran out while it waited for the device is run",
        "batching/batch_run.cc",
        "return row.retries == 0 && row.request->deadline() <= now; };",
        "return row.retries < 0 && row.request->deadline() <= now; };",
        "[batcher]",
    ),
    mutant(
        "cancelled_row_runs",
        "a row is planned though its client has gone",
        "batching/batch_planner.cc",
        "} else if (row.gone) {",
        "} else if (row.gone && row.priority < 0) {",
        "[planner],[batcher]",
    ),
    mutant(
        "reservation_leaked",
        "a reservation that goes out of scope keeps its bytes",
        "memory/memory_budget.cc",
        "Reservation::~Reservation() { Shrink({0}); }",
        "Reservation::~Reservation() = default;",
        "[budget],[batcher]",
    ),
    mutant(
        "reservation_not_shrunk",
        "a batch keeps all the memory that was there, so that no other runs beside it",
        "batching/batcher.cc",
        "work.reservation.Shrink(work.claim.rows.empty() ? Bytes{0} : work.claim.batch.needs);",
        "if (work.claim.rows.empty()) work.reservation.Shrink(Bytes{0});",
        "[batcher]",
    ),
    Mutant(
        "double_completion",
        "a request is answered with its last row but one, and again with its last",
        "batching/request.cc",
        (
            ("if (--unfinished_ > 0) return;", "if (--unfinished_ > 1) return;"),
            ("auto done = std::exchange(parts_.done, nullptr);", "const auto done = parts_.done;"),
        ),
        "[request],[batcher]",
    ),
    mutant(
        "first_failure_lost",
        "a request with a failed row is answered as if it had none",
        "batching/request.cc",
        "if (!status.ok() && failure_.ok()) {",
        "if (!status.ok() && unfinished_ == 1) {",
        "[request],[batcher]",
    ),
    mutant(
        "margin_ignored",
        "estimates are reserved without the safety margin",
        "memory/estimate_correction.cc",
        ": least_(1 + std::max(0.0, safety_margin)) {",
        ": least_(1 + 0 * std::max(0.0, safety_margin)) {",
        "[correction],[batcher]",
    ),
    mutant(
        "correction_forgets",
        "the largest peak that was seen is not kept in mind",
        "memory/estimate_correction.cc",
        "of.largest = std::max(of.largest, ratio);\n  // Ratios",
        "of.largest = ratio;\n  // Ratios",
        "[correction]",
    ),
    mutant(
        "hard_limit_not_set",
        "nothing stops the allocator when an estimate was too low",
        "memory/memory_budget.cc",
        "limited_for_ = BudgetOf(memory);\n  device_.LimitHeld(held_at_rest_ + limited_for_);",
        "limited_for_ = BudgetOf(memory);",
        "[budget]",
    ),
    mutant(
        "reservations_not_counted",
        "two workers are given the same memory",
        "memory/memory_budget.cc",
        "  reserved_ += available;\n",
        "",
        "[budget],[batcher]",
    ),
    mutant(
        "batch_over_budget",
        "a batch that turns out to need more than is available runs all the same",
        "batching/batch_planner.cc",
        "if (batch.needs > limits_.available && count > 1) {",
        "if (batch.needs > limits_.available && count > 1000) {",
        "[planner]",
    ),
    mutant(
        "batches_as_large_as_may_be",
        "rows are cut into the largest batches, whatever time these take",
        "batching/batch_partition.cc",
        "if (total < best - kTie) {",
        "if (total < best - kTie || rows <= most) {",
        "[partition],[planner]",
    ),
    mutant(
        "one_batch_beside_an_idle_worker",
        "rows are not shared out among idle workers",
        "batching/batch_partition.cc",
        "if (idle_workers <= 1) return best;",
        "if (idle_workers <= 1000) return best;",
        "[partition],[planner]",
    ),
    mutant(
        "deadlines_make_no_haste",
        "a row that must start soon waits behind those that came before it",
        "batching/batch_planner.h",
        "return std::min(deadline, After(arrived, std::chrono::seconds(1)));",
        "return After(std::min(arrived, deadline), std::chrono::seconds(1));",
        "[planner],[queue]",
    ),
    mutant(
        "bucket_too_small",
        "a row that is one longer than a bucket is put into it",
        "batching/bucket_ladder.cc",
        "std::lower_bound(buckets_.begin(), buckets_.end(), length);",
        "std::lower_bound(buckets_.begin(), buckets_.end(), length - 1);",
        "[ladder]",
    ),
    mutant(
        "retry_loses_row",
        "a batch that is halved after a failure loses a row",
        "batching/batch_run.cc",
        "for (QueuedRow& row : part.rows) ++row.retries;\n  if (how",
        "if (part.rows.size() > 2) part.rows.pop_back();\n  for (QueuedRow& row : part.rows) ++row.retries;\n  if (how",
        "[recovery]",
    ),
    mutant(
        "no_halving",
        "a batch that ran out of memory fails as a whole",
        "batching/recovery.cc",
        "if (failed.rows > 1) return NextTry::kHalves;",
        "if (failed.rows > 64) return NextTry::kHalves;",
        "[recovery],[batcher]",
    ),
    mutant(
        "ceiling_not_kept",
        "a shape that has just run out of memory is planned again at once",
        "memory/shape_ceiling.cc",
        "if (shape.rows < 2) return;",
        "if (shape.rows < 200) return;",
        "[ceiling],[batcher]",
    ),
    mutant(
        "host_reservation_kept",
        "a request's host memory is not given back with it",
        "memory/host_budget.cc",
        "HostReservation::~HostReservation() { Shrink({0}); }",
        "HostReservation::~HostReservation() = default;",
        "[host_budget]",
    ),
    mutant(
        "priority_inverted",
        "the least urgent goes first",
        "batching/batch_planner.cc",
        "return {row.priority, DueTime(row.arrived, row.deadline)};",
        "return {-row.priority, DueTime(row.arrived, row.deadline)};",
        "[planner],[queue]",
    ),
    mutant(
        "low_priority_starves",
        "urgent rows pass by the oldest without end",
        "batching/request_queue.cc",
        "limits.oldest_first = passed_by_ >= kMostPassedBy;",
        "limits.oldest_first = passed_by_ < 0;",
        "[queue]",
    ),
    mutant(
        "large_row_starves",
        "small rows pass without end by a large one that waits for memory",
        "batching/batch_planner.cc",
        "    if (!starving_) return;\n    plan_.holds_back = true;",
        "    if (!starving_ || plan_.batches.empty()) return;\n    return;",
        "[planner],[batcher]",
    ),
    mutant(
        "queue_bound_off_by_one",
        "one row more may wait than the bound says",
        "batching/request_queue.cc",
        "if (rows > bounds_.max_rows - waiting.rows) {",
        "if (rows > bounds_.max_rows - waiting.rows + 1) {",
        "[queue]",
    ),
    mutant(
        "queue_total_drifts",
        "rows that leave a queue go on counting against the bound of all queues",
        "batching/request_queue.cc",
        "    if (totals_ != nullptr) totals_->Remove(weighs.rows, weighs.bytes);\n",
        "",
        "[queue]",
    ),
    mutant(
        "closed_queue_takes_rows",
        "a model that is taken out of service goes on taking rows that nobody will run",
        "batching/request_queue.cc",
        "  closed_ = true;\n",
        "",
        "[queue],[served_model]",
    ),
    mutant(
        "deadline_timer_asleep",
        "a row that waits behind busy workers is not answered when its time is up",
        "batching/deadline_timer.cc",
        "if (deadline >= next_) return;",
        "if (deadline <= next_) return;",
        "[deadline_timer]",
    ),
    mutant(
        "deadline_timer_one_model",
        "only the last model's deadlines are kept",
        "batching/deadline_timer.cc",
        "next = std::min(next, dead.next_wake);",
        "next = dead.next_wake;",
        "[deadline_timer]",
    ),
    mutant(
        "admission_ignores_what_runs",
        "the wait that is foreseen leaves out the batches that run",
        "batching/admission.cc",
        "Duration all = backlog.running + own;",
        "Duration all = own;",
        "[admission]",
    ),
    mutant(
        "admission_ignores_run_time",
        "a row is admitted that can start in time and not end in time",
        "batching/admission.cc",
        "const Duration clients = Less(std::min(patience.to_start, Less(patience.to_answer, run)), run / 2);",
        "const Duration clients = Less(std::min(patience.to_start, patience.to_answer), run * 0);",
        "[admission]",
    ),
    mutant(
        "one_caller_takes_all",
        "a caller's share of the queue has no bound",
        "batching/admission.cc",
        "if (over_time || over_rows) admission.decision",
        "if (over_time && over_rows && rows < 0) admission.decision",
        "[admission]",
    ),
    mutant(
        "model_takes_every_turn",
        "a model's batches do not count against its turn, so that one model may take the device for itself",
        "batching/model_turns.cc",
        "used = now_ + std::max(expected, kLeastTurn);",
        "used = now_ + 0 * std::max(expected, kLeastTurn);",
        "[batcher],[turns]",
    ),
    mutant(
        "call_place_kept",
        "a call that was refused keeps a place among those that are inside",
        "batching/call_limit.h",
        "      Leave();\n      return std::nullopt;",
        "      return std::nullopt;",
        "[admission],[call_limit]",
    ),
    mutant(
        "not_alone",
        "a run that needs the device to itself shares it",
        "batching/run_gate.cc",
        "while (running_ > 0 || *waiting_alone_.begin() < turn)",
        "while (*waiting_alone_.begin() < turn)",
        "[gate]",
    ),
    mutant(
        "lost_wake",
        "a worker that looked just before work came sleeps on",
        "batching/batcher.cc",
        "while (count_ == seen) {",
        "while (count_ == count_ + 0 * seen) {",
        "[work_signal]",
    ),
)
