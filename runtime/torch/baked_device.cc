#include "runtime/torch/baked_device.h"

#include <absl/strings/str_cat.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "runtime/torch/torch_error.h"

namespace headroom {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// A graph with what its inputs are: the first is the module that it is a method of, or, in what torch.jit.fork runs, they are the
// fork's own inputs.
struct Scope {
  const torch::jit::Module& self;
  const Graph& graph;
  const Node* fork = nullptr;
  const Scope* outer = nullptr;
};

// The value of `value` where it is an attribute reached from the module.
std::optional<c10::IValue> AttributeOf(const Scope& scope, const Value* value) {
  const auto inputs = scope.graph.inputs();
  const auto input = std::find(inputs.begin(), inputs.end(), value);
  if (input != inputs.end()) {
    const auto index = static_cast<std::size_t>(input - inputs.begin());
    if (scope.fork != nullptr) return AttributeOf(*scope.outer, scope.fork->input(index));
    return index == 0 ? std::optional<c10::IValue>(scope.self._ivalue()) : std::nullopt;
  }
  const Node* const node = value->node();
  if (node->kind() != c10::prim::GetAttr) return std::nullopt;
  const auto owner = AttributeOf(scope, node->input(0));
  if (!owner.has_value() || !owner->isObject()) return std::nullopt;
  return owner->toObject()->getAttr(node->s(c10::attr::name));
}

std::optional<c10::IValue> KnownValueOf(const Scope& scope, const Value* value) {
  auto known = torch::jit::toIValue(value);
  return known.has_value() ? known : AttributeOf(scope, value);
}

std::optional<c10::Device> DeviceOf(const Scope& scope, const Value* value) {
  const auto known = KnownValueOf(scope, value);
  if (known.has_value() && known->isDevice()) return known->toDevice();
  // torch.device("cuda", 0): the words are constants, the device is not made until it runs.
  const Node* const node = value->node();
  if (node->kind() != c10::Symbol::aten("device") || node->inputs().empty()) return std::nullopt;
  const auto name = KnownValueOf(scope, node->input(0));
  if (!name.has_value() || !name->isString()) return std::nullopt;
  c10::Device device(name->toStringRef());
  const auto index = node->inputs().size() > 1 ? KnownValueOf(scope, node->input(1)) : std::nullopt;
  if (index.has_value() && index->isInt()) device.set_index(static_cast<c10::DeviceIndex>(index->toInt()));
  return device;
}

bool Conflicts(c10::Device baked, c10::Device device) {
  if (baked.type() != device.type()) return true;
  return !device.is_cpu() && baked.has_index() && baked.index() != device.index();
}

// A device that conflicts inside a list, tuple or dict.
std::optional<c10::Device> ConflictWithin(const c10::IValue& value, c10::Device device) {
  if (value.isDevice()) return Conflicts(value.toDevice(), device) ? std::optional(value.toDevice()) : std::nullopt;
  const auto any = [&](const auto& values) {
    std::optional<c10::Device> found;
    for (const auto& element : values) {
      if (!found) found = ConflictWithin(element, device);
    }
    return found;
  };
  if (value.isTuple()) return any(value.toTupleRef().elements());
  if (value.isList()) return any(value.toListRef());
  if (!value.isGenericDict()) return std::nullopt;
  std::vector<c10::IValue> parts;
  for (const auto& entry : value.toGenericDict()) {
    parts.push_back(entry.key());
    parts.push_back(entry.value());
  }
  return any(parts);
}

// The line of the module's source that `node` comes from, as its author wrote it where the file still knows.
std::string PlaceOf(const Node* node) {
  auto range = node->sourceRange();
  if (auto original = range.findSourceRangeThatGenerated()) range = *original;
  const auto source = range.source();
  if (source == nullptr || source->size() == 0) return "";
  const auto line = source->lineno_for_offset(range.start());
  return absl::StrCat("line ", source->lineno_to_source_lineno(line) + 1, ", \"",
                      ErrorLine(source->get_line(line).str()).substr(0, 120), "\"");
}

bool OnlyCompares(const Node* node) { return node->kind() == c10::aten::eq || node->kind() == c10::aten::ne; }

// The lengths of packed sequences are read on the host, wherever the sequences are.
bool MakesPackedLengths(const Node* node) {
  if (node->outputs().size() != 1 || node->output()->uses().empty()) return false;
  const auto& uses = node->output()->uses();
  return std::all_of(uses.begin(), uses.end(),
                     [](const auto& use) { return use.user->kind() == c10::aten::_pack_padded_sequence && use.offset == 1; });
}

// The device that x.cpu() or x.cuda() names.
std::optional<c10::Device> MovesTo(const Node* node) {
  if (node->kind() == c10::Symbol::aten("cpu")) return c10::Device(c10::kCPU);
  if (node->kind() == c10::Symbol::aten("cuda")) return c10::Device(c10::kCUDA);
  return std::nullopt;
}

// The device of what belongs to torch.cuda: streams, events, and `with torch.cuda.device(1)`, whose calls take an index.
std::optional<c10::Device> UsesCuda(const Scope& scope, const Node* node) {
  if (node->kind().ns() != c10::namespaces::cuda) return std::nullopt;
  c10::Device used(c10::kCUDA);
  if (node->inputs().size() == 1) {
    const auto index = KnownValueOf(scope, node->input(0));
    if (index.has_value() && index->isInt()) used.set_index(static_cast<c10::DeviceIndex>(index->toInt()));
  }
  return used;
}

bool MayName(const Node* node, c10::Device baked) { return OnlyCompares(node) || (baked.is_cpu() && MakesPackedLengths(node)); }

using NodeVisit = std::function<void(const Scope&, Node*)>;

void VisitGraph(const Scope& scope, Graph& graph, const NodeVisit& visit);

void VisitBlock(const Scope& scope, Block* block, const NodeVisit& visit) {
  const auto visit_one = [&](Node* node) {
    for (Block* inner : node->blocks()) VisitBlock(scope, inner, visit);
    if (node->hasAttribute(c10::attr::Subgraph)) {
      Graph& subgraph = *node->g(c10::attr::Subgraph);
      torch::jit::Inline(subgraph);
      VisitGraph({scope.self, subgraph, node, &scope}, subgraph, visit);
    }
    visit(scope, node);
  };
  // A visit may insert before its node and destroy it.
  std::vector<Node*> nodes(block->nodes().begin(), block->nodes().end());
  nodes.push_back(block->return_node());
  for (Node* const node : nodes) visit_one(node);
}

void VisitGraph(const Scope& scope, Graph& graph, const NodeVisit& visit) { VisitBlock(scope, graph.block(), visit); }

// Visits every node that `forward` can reach. Inlined, the graph holds the code of every submodule's method that is called by its
// class; what is called through an interface is found by its name, whichever submodule has it.
void VisitReachable(const torch::jit::Module& module, const NodeVisit& visit) {
  std::set<std::string> called;
  std::vector<std::string> to_visit;
  const auto visit_and_follow = [&](const Scope& scope, Node* node) {
    if (node->kind() == c10::prim::CallMethod) {
      const std::string& name = node->s(c10::attr::name);
      if (called.insert(name).second) to_visit.push_back(name);
    }
    visit(scope, node);
  };
  const auto visit_method = [&](const torch::jit::Module& self, const std::string& name) {
    const auto method = self.find_method(name);
    if (!method.has_value()) return;
    Graph& graph = *torch::jit::toGraphFunction(method->function()).graph();
    torch::jit::Inline(graph);
    VisitGraph({self, graph}, graph, visit_and_follow);
  };
  visit_method(module, "forward");
  while (!to_visit.empty()) {
    const std::string name = to_visit.back();
    to_visit.pop_back();
    for (const torch::jit::Module& submodule : module.modules()) {
      if (submodule._ivalue() != module._ivalue() || name != "forward") visit_method(submodule, name);
    }
  }
}

class Rewriter {
 public:
  explicit Rewriter(c10::Device device) : device_(device) {}

  void Visit(const Scope& scope, Node* node) {
    for (std::size_t i = 0; i < node->inputs().size(); ++i) {
      const auto baked = DeviceOf(scope, node->input(i));
      if (!baked.has_value() || !Conflicts(*baked, device_) || MayName(node, *baked)) continue;
      Note(*baked, node);
      const torch::jit::WithInsertPoint here(node);
      node->replaceInput(i, node->owningGraph()->insertConstant(device_, node->sourceRange()));
    }
    const auto target = MovesTo(node);
    if (!target.has_value() || !Conflicts(*target, device_) || MayName(node, *target)) return;
    Note(*target, node);
    const torch::jit::WithInsertPoint here(node);
    Graph& graph = *node->owningGraph();
    Value* const moved =
        graph.insert(c10::aten::to, {node->input(0), graph.insertConstant(device_, node->sourceRange())}, {}, node->sourceRange());
    moved->setType(node->output()->type());
    node->output()->replaceAllUsesWith(moved);
    node->destroy();
  }

  std::vector<RewrittenDevice> rewritten() const {
    std::vector<RewrittenDevice> all;
    for (const auto& [what, count] : counts_) all.push_back({std::get<0>(what), std::get<1>(what), std::get<2>(what), count});
    return all;
  }

 private:
  void Note(c10::Device baked, const Node* node) { ++counts_[{node->kind().toQualString(), PlaceOf(node), baked.str()}]; }

  const c10::Device device_;
  std::map<std::tuple<std::string, std::string, std::string>, int> counts_;
};

// What `node` names that cannot be on `device`, or nothing.
std::optional<std::string> ConflictOf(const Scope& scope, const Node* node, c10::Device device) {
  if (const auto target = MovesTo(node); target.has_value() && Conflicts(*target, device) && !MayName(node, *target)) {
    return target->str();
  }
  if (const auto used = UsesCuda(scope, node); used.has_value() && Conflicts(*used, device)) return used->str();
  for (const Value* input : node->inputs()) {
    auto baked = DeviceOf(scope, input);
    if (!baked.has_value() && node->kind() != c10::prim::GetAttr) {
      if (const auto known = KnownValueOf(scope, input)) baked = ConflictWithin(*known, device);
    }
    if (baked.has_value() && Conflicts(*baked, device) && !MayName(node, *baked)) return baked->str();
  }
  return std::nullopt;
}

}  // namespace

std::vector<RewrittenDevice> RewriteBakedDevices(const torch::jit::Module& module, c10::Device device) {
  Rewriter rewriter(device);
  VisitReachable(module, [&](const Scope& scope, Node* node) { rewriter.Visit(scope, node); });
  return rewriter.rewritten();
}

absl::Status CheckBakedDevices(const torch::jit::Module& module, c10::Device device) {
  absl::Status found;
  VisitReachable(module, [&](const Scope& scope, Node* node) {
    if (!found.ok()) return;
    const auto baked = ConflictOf(scope, node, device);
    if (!baked.has_value()) return;
    const std::string place = PlaceOf(node);
    found = absl::InvalidArgumentError(absl::StrCat("the device \"", *baked, "\" is baked into the graph, which cannot run on \"",
                                                    device.str(), "\": ", node->kind().toQualString(), place.empty() ? "" : " in ",
                                                    place));
  });
  return found;
}

}  // namespace headroom
