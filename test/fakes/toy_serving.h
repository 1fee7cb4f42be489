// Fake devices that serve toy models, as the server puts them together, without threads.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "batching/batcher.h"
#include "memory/calibration.h"
#include "runtime/sample_batch.h"
#include "test/fakes/fake_device.h"
#include "test/fakes/manual_clock.h"
#include "test/fakes/recording_observer.h"
#include "test/fakes/toy_request.h"

namespace headroom {

class ToyServing {
 public:
  static constexpr double kFraction = 0.8;

  ToyServing() = default;
  // With one device already.
  explicit ToyServing(FakeDevice::Options options) { AddDevice(std::move(options)); }

  ServingDevice& AddDevice(FakeDevice::Options options) {
    auto serving = std::make_unique<ServingDevice>();
    serving->device = std::make_unique<FakeDevice>(std::move(options));
    serving->budget = std::make_unique<MemoryBudget>(*serving->device, kFraction);
    devices_.push_back(std::move(serving));
    return *devices_.back();
  }

  ServingDevice& serving_device(std::size_t index = 0) { return *devices_.at(index); }
  FakeDevice& device(std::size_t index = 0) { return static_cast<FakeDevice&>(*devices_.at(index)->device); }
  MemoryBudget& budget(std::size_t index = 0) { return *devices_.at(index)->budget; }

  // Loads and calibrates on every device, or on those of `only`. Calibration measures `bias` of what a run takes in
  // memory, and ten microseconds a token.
  std::shared_ptr<const ServedModel> Serve(ModelSpec model_spec, std::vector<std::size_t> only = {}, double bias = 1) {
    auto spec = std::make_shared<const ModelSpec>(std::move(model_spec));
    if (only.empty()) {
      for (std::size_t i = 0; i < devices_.size(); ++i) only.push_back(i);
    }
    std::vector<ModelInstance> instances;
    for (const std::size_t index : only) {
      ServingDevice& serving = *devices_.at(index);
      auto loaded = serving.device->Load("model.pt", *spec).value();
      CheckedOk(serving.budget->MarkAtRest());
      const BucketLadder ladder(*spec, serving.device->kind());
      const Bytes limit = serving.budget->idle_budget();
      const auto probe = [&](BatchShape shape) {
        RunResult result = serving.device->Probe(*loaded, SampleBatch(*spec, shape, *serving.device, /*seed=*/1), limit);
        if (auto* output = std::get_if<RunOutput>(&result)) {
          output->peak = Scale(*output->peak, bias);
          output->compute = std::chrono::microseconds(16 + 10 * shape.rows * shape.length);
        }
        return result;
      };
      auto calibration = Calibrate(ladder.ShapesToCalibrate(), limit, probe, [](std::size_t, std::size_t, std::int64_t) {}, {});
      instances.emplace_back(&serving, std::move(loaded), ladder, CalibratedEstimator(calibration.value().curves),
                             CalibratedEstimator(TensorCurves(*calibration)), spec->safety_margin);
    }
    auto model = std::make_shared<const ServedModel>(spec, 1, std::move(instances));
    models.Add(model);
    return model;
  }

  // Enqueues a request that has arrived now, unless `options` say otherwise.
  ToyRequest Ask(const ServedModel& model, const std::vector<Ids>& rows, ToyRequestOptions options = {}) {
    if (options.arrived == TimePoint{}) options.arrived = clock.Now();
    ToyRequest made = MakeToyRequest(model.spec, model.instances.front().ladder, rows, options);
    CheckedOk(model.queue.Enqueue(made.request));
    work.Notify();
    return made;
  }

  Batcher Worker(std::size_t device_index = 0) { return Batcher(serving_device(device_index), models, observer, work, clock); }

  ManualClock clock;
  RecordingObserver observer;
  WorkSignal work;

 private:
  static void CheckedOk(const absl::Status& status) {
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  }

  std::vector<std::unique_ptr<ServingDevice>> devices_;

 public:
  ModelSet models;  // after the devices: models go first
};

}  // namespace headroom
