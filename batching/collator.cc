#include "batching/collator.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/sample_batch.h"

namespace headroom {
namespace {

// One row of a tensor seen as [outer, length, inner]: the sequence axis may be any of the dims.
struct RowLayout {
  std::int64_t outer = 1;
  bool has_sequence = false;
  std::int64_t inner_bytes = 0;  // of one step along the sequence; of everything where there is no sequence

  RowLayout(DataType type, const std::vector<std::int64_t>& dims) {
    const int axis = SequenceAxisOf(dims);
    has_sequence = axis >= 0;
    inner_bytes = SizeOf(type);
    for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
      if (i == axis) continue;
      (i < axis ? outer : inner_bytes) *= dims[static_cast<std::size_t>(i)];
    }
  }
  std::int64_t row_bytes(std::int64_t length) const { return outer * (has_sequence ? length : 1) * inner_bytes; }
};

// Copies the first `length` steps of every sequence of a row.
void CopyRow(const RowLayout& layout, const std::byte* from, std::int64_t from_length, std::byte* to, std::int64_t to_length,
             std::int64_t length) {
  const std::int64_t bytes = (layout.has_sequence ? length : 1) * layout.inner_bytes;
  for (std::int64_t i = 0; i < layout.outer; ++i) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    from += layout.row_bytes(from_length) / layout.outer;
    to += layout.row_bytes(to_length) / layout.outer;
  }
}

// Fills steps [begin, end) of every sequence of a row with one element.
void FillRow(const RowLayout& layout, std::byte* row, std::int64_t length, std::int64_t begin, std::int64_t end,
             std::span<const std::byte> element) {
  const bool zero = std::all_of(element.begin(), element.end(), [](std::byte b) { return b == std::byte{0}; });
  if (!layout.has_sequence) begin = 0, end = 1;
  for (std::int64_t i = 0; i < layout.outer; ++i) {
    std::byte* to = row + i * (layout.row_bytes(length) / layout.outer) + begin * layout.inner_bytes;
    const std::int64_t bytes = (end - begin) * layout.inner_bytes;
    if (zero) {
      std::memset(to, 0, static_cast<std::size_t>(bytes));
      continue;
    }
    for (std::byte* const stop = to + bytes; to < stop; to += element.size()) std::memcpy(to, element.data(), element.size());
  }
}

// An element as bytes, at most 8 of them.
class Element {
 public:
  Element(DataType type, double value) : size_(static_cast<std::size_t>(SizeOf(type))) { StoreElement(type, value, bytes_.data()); }
  operator std::span<const std::byte>() const { return {bytes_.data(), size_}; }  // NOLINT(google-explicit-constructor)

 private:
  std::array<std::byte, 8> bytes_{};
  std::size_t size_;
};

}  // namespace

PaddedBatch Collate(const ModelSpec& spec, std::span<const QueuedRow> rows, const BatchShape& shape, Device& device) {
  PaddedBatch batch;
  batch.shape = shape;
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    const InputSpec& input = spec.inputs[i];
    const RowLayout layout(input.type, input.dims);
    const bool is_mask = input.role == InputRole::kMask;
    const Element padding(input.type, is_mask ? 0 : input.pad_value);
    const Element one(input.type, 1);
    HostTensor tensor = AllocateInput(spec, input, shape, device);
    std::byte* to = tensor.data.get();
    for (const QueuedRow& queued : rows) {
      const std::int64_t length = queued.row().placement.kept_length;
      const std::byte* const from = queued.request->InputRow(i, queued.index);
      if (from != nullptr) {
        CopyRow(layout, from, queued.request->client_length(), to, shape.length, length);
      } else {
        FillRow(layout, to, shape.length, 0, length, is_mask ? one : padding);
      }
      if (layout.has_sequence) FillRow(layout, to, shape.length, length, shape.length, padding);
      to += layout.row_bytes(shape.length);
    }
    batch.inputs.push_back(std::move(tensor));
  }
  return batch;
}

void Scatter(const ModelSpec& spec, std::span<const QueuedRow> rows, const BatchShape& shape,
             const std::vector<HostTensor>& outputs) {
  for (std::size_t i = 0; i < spec.outputs.size(); ++i) {
    const RowLayout layout(spec.outputs[i].type, spec.outputs[i].dims);
    const std::byte* from = outputs[i].data.get();
    for (const QueuedRow& queued : rows) {
      if (queued.request->wants(i)) {
        CopyRow(layout, from, shape.length, queued.request->OutputRow(i, queued.index), queued.request->output_length(),
                queued.row().placement.kept_length);
      }
      from += layout.row_bytes(shape.length);
    }
  }
}

}  // namespace headroom
