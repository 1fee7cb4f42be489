// Inference requests as clients build them, and a model to decode them for, without a device behind it.
#pragma once

#include <google/protobuf/text_format.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "batching/served_model.h"
#include "proto/open_inference.pb.h"
#include "test/fakes/toy_request.h"

namespace headroom {

template <class Message>
Message FromText(const std::string& text) {
  Message message;
  if (!google::protobuf::TextFormat::ParseFromString(text, &message)) throw std::invalid_argument(text);
  return message;
}

inline inference::ModelInferRequest InferRequest(const std::string& text) { return FromText<inference::ModelInferRequest>(text); }

// The bytes of dense little-endian elements.
template <class T>
std::string RawBytes(const std::vector<T>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}

// Adds an input with raw contents.
template <class T>
void AddRaw(inference::ModelInferRequest& request, const std::string& name, const std::string& datatype,
            const std::vector<std::int64_t>& shape, const std::vector<T>& elements) {
  auto* const input = request.add_inputs();
  input->set_name(name);
  input->set_datatype(datatype);
  for (const std::int64_t dim : shape) input->add_shape(dim);
  request.add_raw_input_contents(RawBytes(elements));
}

// A request to the toy model P: rows of equal length, and masks of the same length where there are any.
inline inference::ModelInferRequest ToyWireRequest(const std::vector<Ids>& rows, const std::vector<Ids>& masks = {}) {
  const auto flat = [](const std::vector<Ids>& lists) {
    Ids all;
    for (const Ids& list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
  };
  const auto count = static_cast<std::int64_t>(rows.size());
  const auto length = static_cast<std::int64_t>(rows.front().size());
  inference::ModelInferRequest request;
  AddRaw(request, "input_ids", "INT64", {count, length}, flat(rows));
  if (!masks.empty()) AddRaw(request, "attention_mask", "INT64", {count, length}, flat(masks));
  return request;
}

// Version 3 of a model that nothing can run: for whoever needs only its rules.
inline std::shared_ptr<const ServedModel> ServedOnPaper(ModelSpec model_spec) {
  auto spec = std::make_shared<const ModelSpec>(std::move(model_spec));
  LengthCurve curve;
  curve.points = {{.rows = 1, .peak = KiB(1), .latency = Duration(1)}};
  std::vector<ModelInstance> instances;
  instances.emplace_back(nullptr, nullptr, BucketLadder(*spec, DeviceKind::kCpu), CalibratedEstimator({curve}),
                         CalibratedEstimator({curve}), 0.0);
  return std::make_shared<const ServedModel>(spec, 3, std::move(instances));
}

}  // namespace headroom
