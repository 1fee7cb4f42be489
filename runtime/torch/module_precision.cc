#include "runtime/torch/module_precision.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace headroom {
namespace {

using torch::jit::Block;
using torch::jit::Node;

// Each tensor once, however many name it.
class Conversion {
 public:
  explicit Conversion(c10::ScalarType type) : type_(type) {}

  at::Tensor Of(const at::Tensor& tensor) {
    at::Tensor& converted = done_[tensor.unsafeGetTensorImpl()];
    if (!converted.defined()) converted = tensor.to(type_);
    return converted;
  }

 private:
  const c10::ScalarType type_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> done_;
};

// The parameters and buffers of `part` itself.
std::vector<std::pair<std::string, at::Tensor>> TensorsOf(const torch::jit::Module& part) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& attribute : part.named_attributes(/*recurse=*/false)) {
    if (attribute.value.isTensor() && attribute.value.toTensor().defined()) {
      tensors.emplace_back(attribute.name, attribute.value.toTensor());
    }
  }
  return tensors;
}

// What autocast runs in half precision on the CPU and on CUDA alike, of what has weights.
bool RunsInHalf(const Node* node) {
  static const std::array kinds = {"aten::linear", "aten::matmul", "aten::mm",          "aten::bmm",
                                   "aten::addmm",  "aten::addbmm", "aten::baddbmm",     "aten::conv1d",
                                   "aten::conv2d", "aten::conv3d", "aten::_convolution"};
  const std::string kind = node->kind().toQualString();
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

void ConvertConstants(Block* block, Conversion& conversion) {
  for (Node* const node : block->nodes()) {
    for (Block* const inner : node->blocks()) ConvertConstants(inner, conversion);
    if (!RunsInHalf(node)) continue;
    for (std::size_t i = 0; i < node->inputs().size(); ++i) {
      const auto constant = torch::jit::toIValue(node->input(i));
      if (!constant.has_value() || !constant->isTensor()) continue;
      const at::Tensor& tensor = constant->toTensor();
      if (!tensor.defined() || tensor.scalar_type() != c10::ScalarType::Float) continue;
      const torch::jit::WithInsertPoint here(node);
      node->replaceInput(i, node->owningGraph()->insertConstant(conversion.Of(tensor), node->sourceRange()));
    }
  }
}

}  // namespace

torch::jit::Module Rebuilt(const torch::jit::Module& module, c10::Device device, std::optional<c10::ScalarType> type) {
  // Through the archive that a module is saved as, without its weights.
  const torch::jit::Module hollow = module.clone(/*inplace=*/true);  // objects of its own, the same tensors
  for (torch::jit::Module part : hollow.modules()) {
    for (const auto& [name, tensor] : TensorsOf(part)) part.setattr(name, at::empty({0}, tensor.options()));
  }
  std::stringstream archive;
  hollow.save(archive);
  torch::jit::Module rebuilt = torch::jit::load(archive, device);

  std::optional<Conversion> conversion;
  if (type.has_value()) conversion.emplace(*type);
  std::vector<torch::jit::Module> parts;
  for (const torch::jit::Module& part : rebuilt.modules()) parts.push_back(part);
  std::size_t at = 0;
  for (const torch::jit::Module& part : module.modules()) {
    TORCH_CHECK(at < parts.size(), "the module does not come back from its archive as it was");
    torch::jit::Module& to = parts[at++];
    for (const auto& [name, tensor] : TensorsOf(part)) {
      to.setattr(name, conversion.has_value() && tensor.is_floating_point() ? conversion->Of(tensor) : tensor);
    }
  }
  return rebuilt;
}

void ConvertAutocastWeights(torch::jit::Method& method, c10::ScalarType type) {
  const auto graph = torch::jit::toGraphFunction(method.function()).graph();
  Conversion conversion(type);
  ConvertConstants(graph->block(), conversion);
  torch::jit::EliminateDeadCode(graph);
}

AutocastScope::AutocastScope(c10::DeviceType device, c10::ScalarType type)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      was_type_(at::autocast::get_autocast_dtype(device)),
      was_caching_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::increment_nesting();
  at::autocast::set_autocast_dtype(device, type);
  // Nothing that serves requires gradients, so nothing would be remembered; off, it cannot be kept beyond the run either.
  at::autocast::set_autocast_cache_enabled(false);
  at::autocast::set_autocast_enabled(device, true);
}

AutocastScope::~AutocastScope() {
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_cache_enabled(was_caching_);
  at::autocast::set_autocast_dtype(device_, was_type_);
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
}

}  // namespace headroom
