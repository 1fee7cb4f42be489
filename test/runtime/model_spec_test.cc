#include "runtime/model_spec.h"

#include <catch2/catch.hpp>

#include "test/fakes/toy_request.h"

namespace headroom {
namespace {

TEST_CASE("the sequence axis is where a dimension is open", "[model_spec]") {
  CHECK(SequenceAxisOf({}) == -1);
  CHECK(SequenceAxisOf({3, 4}) == -1);
  CHECK(SequenceAxisOf({-1}) == 0);
  CHECK(SequenceAxisOf({2, -1, 8}) == 1);
}

TEST_CASE("a model with a mask may be padded, one without may not unless it says so", "[model_spec]") {
  ModelSpec spec = ToySpec();
  CHECK(spec.mask_index() == 1);
  CHECK(spec.variable_length());
  CHECK(spec.may_pad());
  spec.inputs.pop_back();
  CHECK(spec.mask_index() == -1);
  CHECK_FALSE(spec.may_pad());
  spec.sequence.padding_safe = true;
  CHECK(spec.may_pad());
}

TEST_CASE("a model without a batch dimension runs one row at a time", "[model_spec]") {
  ModelSpec spec = ToySpec();
  CHECK(spec.has_batch_dimension());
  CHECK(spec.largest_batch() == 8);
  spec.max_batch_rows = 0;
  CHECK_FALSE(spec.has_batch_dimension());
  CHECK(spec.largest_batch() == 1);
}

TEST_CASE("fixed shapes have no variable length", "[model_spec]") {
  ModelSpec spec;
  spec.inputs = {{.name = "image", .dims = {3, 8, 8}, .value_range = {}}};
  CHECK_FALSE(spec.variable_length());
}

}  // namespace
}  // namespace headroom
