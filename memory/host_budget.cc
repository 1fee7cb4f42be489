#include "memory/host_budget.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cassert>
#include <utility>

namespace headroom {

const char* NameOf(HostStage stage) {
  switch (stage) {
    case HostStage::kRequest: return "request";
    case HostStage::kQueue: return "queue";
    case HostStage::kStaging: return "staging";
    case HostStage::kReply: return "reply";
  }
  return "";
}

HostReservation::HostReservation(HostReservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), stage_(other.stage_), bytes_(std::exchange(other.bytes_, Bytes{0})) {}

HostReservation& HostReservation::operator=(HostReservation&& other) noexcept {
  if (this != &other) {
    Shrink({0});
    budget_ = std::exchange(other.budget_, nullptr);
    stage_ = other.stage_;
    bytes_ = std::exchange(other.bytes_, Bytes{0});
  }
  return *this;
}

HostReservation::~HostReservation() { Shrink({0}); }

void HostReservation::Shrink(Bytes bytes) {
  if (budget_ == nullptr || bytes >= bytes_) return;
  bytes = std::max(bytes, Bytes{0});
  budget_->GiveBack(stage_, bytes_ - bytes);
  bytes_ = bytes;
}

void HostReservation::MoveTo(HostStage stage) {
  if (budget_ != nullptr) budget_->Move(stage_, stage, bytes_);
  stage_ = stage;
}

HostReservation HostReservation::Split(HostStage stage, Bytes bytes) {
  assert(bytes <= bytes_ && "more is split off than there is");
  if (budget_ == nullptr) return {};
  budget_->Move(stage_, stage, bytes);
  bytes_ -= bytes;
  return {*budget_, stage, bytes};
}

void HostBudget::Open(Bytes limit, Bytes set_aside_for_staging) {
  MutexLock lock(mutex_);
  limit_ = limit;
  set_aside_ = set_aside_for_staging;
}

absl::StatusOr<HostReservation> HostBudget::Reserve(HostStage stage, Bytes bytes) {
  MutexLock lock(mutex_);
  const Bytes available = Available();
  // As a difference: what a client's message asks for may be any number.
  if (bytes > available) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server has too little memory left for this request and its reply: ", bytes.count, " bytes are needed, ",
                     std::max<std::int64_t>(0, available.count), " of ", (limit_ - set_aside_).count, " are left"));
  }
  Of(stage) += bytes;
  return HostReservation(*this, stage, bytes);
}

bool HostBudget::CouldEverFit(Bytes bytes) const {
  MutexLock lock(mutex_);
  return bytes <= limit_ - set_aside_;
}

HostReservation HostBudget::ReserveStaging(Bytes bytes) {
  MutexLock lock(mutex_);
  Of(HostStage::kStaging) += bytes;
  return {*this, HostStage::kStaging, bytes};
}

HostUsage HostBudget::usage() const {
  MutexLock lock(mutex_);
  return {limit_, reserved_};
}

Bytes HostBudget::Available() const {
  Bytes taken = std::max(set_aside_, reserved_[static_cast<std::size_t>(HostStage::kStaging)]);
  for (const HostStage stage : {HostStage::kRequest, HostStage::kQueue, HostStage::kReply}) {
    taken += reserved_.at(static_cast<std::size_t>(stage));
  }
  return limit_ - taken;
}

void HostBudget::Move(HostStage from, HostStage to, Bytes bytes) {
  MutexLock lock(mutex_);
  Of(from) -= bytes;
  Of(to) += bytes;
}

void HostBudget::GiveBack(HostStage stage, Bytes bytes) {
  MutexLock lock(mutex_);
  Of(stage) -= bytes;
}

}  // namespace headroom
