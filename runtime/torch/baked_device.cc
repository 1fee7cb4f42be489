#include "runtime/torch/baked_device.h"

#include <absl/strings/str_cat.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <optional>
#include <string>

#include "base/status_macros.h"
#include "runtime/torch/torch_error.h"

namespace headroom {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// The value of `value` where it is an attribute reached from the module `self` (a graph's first input).
std::optional<c10::IValue> AttributeOf(const torch::jit::Module& self, const Graph& graph, const Value* value) {
  if (!graph.inputs().empty() && value == graph.inputs().front()) return self._ivalue();
  const Node* const node = value->node();
  if (node->kind() != c10::prim::GetAttr) return std::nullopt;
  const auto owner = AttributeOf(self, graph, node->input(0));
  if (!owner.has_value() || !owner->isObject()) return std::nullopt;
  return owner->toObject()->getAttr(node->s(c10::attr::name));
}

std::optional<c10::Device> DeviceOf(const torch::jit::Module& self, const Graph& graph, const Value* value) {
  auto known = torch::jit::toIValue(value);
  if (!known.has_value()) known = AttributeOf(self, graph, value);
  if (known.has_value() && known->isDevice()) return known->toDevice();
  // torch.device("cuda", 0): the words are constants, the device is not made until it runs.
  const Node* const node = value->node();
  if (node->kind() == c10::Symbol::aten("device") && !node->inputs().empty()) {
    const auto name = torch::jit::toIValue(node->input(0));
    if (!name.has_value() || !name->isString()) return std::nullopt;
    c10::Device device(name->toStringRef());
    const auto index = node->inputs().size() > 1 ? torch::jit::toIValue(node->input(1)) : std::nullopt;
    if (index.has_value() && index->isInt()) device.set_index(static_cast<c10::DeviceIndex>(index->toInt()));
    return device;
  }
  return std::nullopt;
}

bool Conflicts(c10::Device baked, c10::Device device) {
  if (baked.type() != device.type()) return true;
  return !device.is_cpu() && baked.has_index() && baked.index() != device.index();
}

// The line of the module's source that `node` comes from, as its author wrote it where the file still knows.
std::string SourceLine(const Node* node) {
  auto range = node->sourceRange();
  if (auto original = range.findSourceRangeThatGenerated()) range = *original;
  const auto source = range.source();
  if (source == nullptr || source->size() == 0) return "";
  const auto line = source->lineno_for_offset(range.start());
  return absl::StrCat(" in line ", source->lineno_to_source_lineno(line) + 1, ", \"",
                      ErrorLine(source->get_line(line).str()).substr(0, 120), "\"");
}

absl::Status Baked(c10::Device baked, c10::Device device, const Node* node) {
  return absl::InvalidArgumentError(absl::StrCat("the device \"", baked.str(), "\" is baked into the graph, which cannot run on \"",
                                                 device.str(), "\": ", node->kind().toQualString(), SourceLine(node)));
}

absl::Status CheckBlock(const torch::jit::Module& self, const Graph& graph, const Block* block, c10::Device device);

absl::Status CheckNode(const torch::jit::Module& self, const Graph& graph, const Node* node, c10::Device device) {
  static const auto kCpu = c10::Symbol::aten("cpu");
  static const auto kCuda = c10::Symbol::aten("cuda");
  if (node->kind() == kCpu && !device.is_cpu()) return Baked(c10::Device(c10::kCPU), device, node);
  if (node->kind() == kCuda && !device.is_cuda()) return Baked(c10::Device(c10::kCUDA), device, node);
  if (node->kind() != c10::aten::eq && node->kind() != c10::aten::ne) {
    for (const Value* input : node->inputs()) {
      const auto baked = DeviceOf(self, graph, input);
      if (baked.has_value() && Conflicts(*baked, device)) return Baked(*baked, device, node);
    }
  }
  for (const Block* block : node->blocks()) RETURN_IF_ERROR(CheckBlock(self, graph, block, device));
  // What torch.jit.fork runs is a graph of its own.
  if (node->hasAttribute(c10::attr::Subgraph)) {
    const auto subgraph = node->g(c10::attr::Subgraph)->copy();
    torch::jit::Inline(*subgraph);
    RETURN_IF_ERROR(CheckBlock(self, *subgraph, subgraph->block(), device));
  }
  return absl::OkStatus();
}

absl::Status CheckBlock(const torch::jit::Module& self, const Graph& graph, const Block* block, c10::Device device) {
  for (const Node* node : block->nodes()) RETURN_IF_ERROR(CheckNode(self, graph, node, device));
  return CheckNode(self, graph, block->return_node(), device);
}

}  // namespace

absl::Status CheckBakedDevices(const torch::jit::Module& module, c10::Device device) {
  // Inlined, the graph holds the code of every submodule's method that forward can reach, and no other.
  const auto graph = module.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  return CheckBlock(module, *graph, graph->block(), device);
}

}  // namespace headroom
