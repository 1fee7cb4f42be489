#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.h"
#include "test/runtime/torch/scripted_model.h"

namespace headroom {
namespace {

// Freezing must not fold the weight away.
constexpr const char* kWeighted = "def forward(self, x):\n    return (x * self.w).sum().view([1])\n";

void Write(const std::filesystem::path& file, const std::string& content) { std::ofstream(file, std::ios::binary) << content; }

TEST_CASE("every load is counted and logged", "[module_load]") {
  const auto device = CpuWithLimit();
  std::vector<LogEvent> events;
  SetLogSink([&](const LogEvent& event) { events.push_back(event); });
  CHECK(device->loads() == 0);
  LoadSource(*device, SpecOf({"x"}, {"y"}), "def forward(self, x):\n    return x + 1\n");
  SetLogSink([](const LogEvent&) {});
  CHECK(device->loads() == 1);
  REQUIRE(events.size() == 1);
  CHECK(events[0].message == "model loaded");
  CHECK(events[0].fields[0].second.text == "toy");
  CHECK(events[0].fields[1].second.text == "cpu");
  CHECK(events[0].fields[2].second.text == "1");
}

TEST_CASE("weights count while the model lives", "[module_load]") {
  const auto device = CpuWithLimit();
  const Bytes before = device->Memory()->allocated;
  auto model = LoadSource(*device, SpecOf({"x"}, {"y"}), kWeighted, {{"w", 1 << 18}});
  const Bytes held = device->Memory()->allocated - before;
  CHECK(held >= MiB(1));
  CHECK(held <= MiB(1) + KiB(4));
  CHECK(FloatsOf(Succeed(device->Run(*model, BatchOf({{1}}))).outputs[0]) == std::vector<float>{(1 << 18) * 1.0F});
  model.reset();
  CHECK(device->Memory()->allocated == before);
}

TEST_CASE("a model whose weights do not fit is refused, saying how much", "[module_load]") {
  const TemporaryFolder folder;
  auto device = CpuWithLimit();
  const auto file = SaveModule(folder, kWeighted, {{"w", 1 << 18}});
  const Bytes before = device->Memory()->allocated;
  device = CpuWithLimit(before + KiB(512));
  const auto model = device->Load(file, SpecOf({"x"}, {"y"}));
  REQUIRE_FALSE(model.ok());
  CHECK(absl::IsResourceExhausted(model.status()));
  CHECK(std::string(model.status().message()) ==
        "the model does not fit: it needs at least 1.00 MiB of the 512.00 KiB that are free on cpu");
  CHECK(device->Memory()->allocated == before);
  CpuWithLimit();
}

TEST_CASE("a file that is no module is refused in one line without a path", "[module_load]") {
  const auto device = CpuWithLimit();
  const TemporaryFolder folder;
  const auto good = SaveModule(folder, kWeighted, {{"w", 100'000}});
  std::ifstream stream(good, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  struct Case {
    std::string content;
    std::string begin;
  };
  const std::string damaged = "the model file is damaged or not a TorchScript module: ";
  for (const Case& c : std::vector<Case>{
           {"", "the model file is empty"},
           {"#!/bin/sh\necho\n", "the model file is not a TorchScript module (it is no zip archive)"},
           {"PK\x03\x04", damaged},
           {content.substr(0, content.size() / 2), damaged},
           {content.substr(0, content.size() - 10), damaged},
           {content + content.substr(0, 100), damaged},
           {content.substr(100), "the model file is not a TorchScript module"},
       }) {
    const auto file = folder.path() / "bad.pt";
    Write(file, c.content);
    const auto model = device->Load(file, SpecOf({"x"}, {"y"}));
    if (model.ok()) continue;  // zip readers look for the directory from the end, so a longer file may still be whole
    const std::string text(model.status().message());
    INFO(text);
    CHECK(absl::IsInvalidArgument(model.status()));
    CHECK(text.starts_with(c.begin));
    CHECK(text.find('\n') == std::string::npos);
    CHECK(text.find(folder.path().string()) == std::string::npos);
  }
  CHECK(std::string(device->Load(folder.path() / "none.pt", SpecOf({"x"}, {"y"})).status().message()) ==
        "the model file is missing");
  CHECK(std::string(device->Load(folder.path(), SpecOf({"x"}, {"y"})).status().message()) == "the model file is missing");
}

TEST_CASE("a module without forward is refused", "[module_load]") {
  const auto device = CpuWithLimit();
  const absl::Status status = RefusalOf(*device, SpecOf({"x"}, {"y"}), "def other(self, x):\n    return x\n");
  CHECK(std::string(status.message()) == "the module has no method forward");
}

// A module that names a device in its forward, by this body.
struct Baked {
  std::string body;
  std::string device;
  std::string operation;
  std::string line;
  float at_one = 1;  // what forward makes of {1, 1, 1}, where the device is one that is there
  int count = 1;
};

const std::vector<Baked>& BakedModules() {
  static const std::vector<Baked> modules = {
      {"    return x.to(torch.device('cuda:0'))\n", "cuda:0", "aten::to", "x.to(torch.device('cuda:0'))"},
      {"    return x.to('cuda') * 2\n", "cuda", "aten::to", "x.to('cuda')", 2},
      {"    return x.to('cuda:0', 7).to(6)\n", "cuda:0", "aten::to", "x.to('cuda:0', 7)"},
      {"    return x.cuda() + 1\n", "cuda", "aten::cuda", "x.cuda()", 2},
      {"    if x.size(0) < 1000:\n        x = x + torch.ones([1], device='cuda:1')\n    return x\n", "cuda:1", "aten::ones",
       "torch.ones([1], device='cuda:1')", 2},
      {"    return x.to(torch.device('cuda', 1))\n", "cuda:1", "aten::to", "x.to(torch.device('cuda', 1))"},
      // Two calls of a method are two places of one line.
      {"    return self.hidden(x) + self.hidden(x)\ndef hidden(self, x):\n    return x + torch.full([3], 4.0, device='cuda')\n",
       "cuda", "aten::full", "torch.full([3], 4.0, device='cuda')", 10, 2},
      {"    if x.size(0) < 1000:\n        place = torch.device('cuda:0')\n    else:\n        place = x.device\n"
       "    return x + torch.ones([1], device=place)\n",
       "cuda:0", "prim::Return", "", 2},
      {"    places = [torch.device('cuda:0'), x.device]\n    return x + torch.ones([1], device=places[0])\n", "cuda:0",
       "prim::ListConstruct", "", 2},
      {"    for i in range(3):\n        x = x + torch.ones_like(x, device='cuda:0')\n    return x\n", "cuda:0", "aten::ones_like",
       "torch.ones_like(x, device='cuda:0')", 4},
      {"    work = fork(self.hidden, x)\n    return torch.wait(work)\n"
       "def hidden(self, x):\n    return x + torch.ones([1], device='cuda:0')\n",
       "cuda:0", "aten::ones", "torch.ones([1], device='cuda:0')", 2},
      {"    return x.to('mps')\n", "mps", "aten::to", "x.to('mps')"},
  };
  return modules;
}

ModelSpec SpecForCpu() {
  ModelSpec spec = SpecOf({"x"}, {"y"});
  spec.meant_for_cpu = true;
  return spec;
}

// What is logged of rewriting while `body` runs.
std::vector<LogEvent> RewritesIn(const std::function<void()>& body) {
  std::vector<LogEvent> events;
  SetLogSink([&](const LogEvent& event) {
    if (event.message.find("rewritten") != std::string::npos) events.push_back(event);
  });
  body();
  SetLogSink([](const LogEvent&) {});
  return events;
}

TEST_CASE("a graph that names a GPU is refused on the CPU, naming it, the operation and the line", "[module_load][baked]") {
  const auto device = CpuWithLimit();
  for (const Baked& c : BakedModules()) {
    const absl::Status status = RefusalOf(*device, SpecOf({"x"}, {"y"}), "def forward(self, x):\n" + c.body);
    const std::string text(status.message());
    INFO(text);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(text.find("the device \"" + c.device + "\" is baked into the graph, which cannot run on \"cpu\": " + c.operation) == 0);
    CHECK(text.find(c.line) != std::string::npos);
    CHECK(text.find("instance_group { kind: KIND_CPU }") != std::string::npos);
  }
}

TEST_CASE("it is rewritten where the configuration means the CPU, gives the same values, and is logged", "[module_load][baked]") {
  const auto device = CpuWithLimit();
  for (const Baked& c : BakedModules()) {
    INFO(c.body);
    const std::vector<LogEvent> events = RewritesIn([&] {
      const auto model = LoadSource(*device, SpecForCpu(), "def forward(self, x):\n" + c.body);
      for (int run = 0; run < 2; ++run) {
        const RunOutput output = Succeed(device->Run(*model, BatchOf({{1, 1, 1}})));
        CHECK(FloatsOf(output.outputs[0]) == std::vector<float>(3, c.at_one));
      }
    });
    REQUIRE(events.size() == 1);
    CHECK(events[0].level == LogLevel::kWarning);
    const auto& fields = events[0].fields;
    REQUIRE(fields.size() == 6);
    CHECK(fields[0].second.text == "toy");
    CHECK(fields[1].second.text == "cpu");
    CHECK(fields[2].second.text == c.device);
    CHECK(fields[3].second.text == c.operation);
    CHECK(fields[4].second.text.find(c.line) != std::string::npos);
    CHECK(fields[5].second.text == std::to_string(c.count));
  }
}

TEST_CASE("what a trace has written down many times is told in a few lines", "[module_load][baked]") {
  const auto device = CpuWithLimit();
  std::string source = "def forward(self, x):\n";
  for (int i = 0; i < 25; ++i) source += "    x = x + torch.full([1], " + std::to_string(i) + ".0, device='cuda:0')\n";
  const std::vector<LogEvent> events = RewritesIn([&] {
    const auto model = LoadSource(*device, SpecForCpu(), source + "    return x\n");
    CHECK(FloatsOf(Succeed(device->Run(*model, BatchOf({{1}}))).outputs[0]) == std::vector<float>{1 + 300});
  });
  REQUIRE(events.size() == 11);
  CHECK(events[10].fields[2].second.text == "15");
}

TEST_CASE("a device that is an attribute of a submodule is found and rewritten", "[module_load][baked]") {
  const auto device = CpuWithLimit();
  for (const std::string place : {"self.place", "torch.device(self.word)", "torch.device(self.word, self.number)"}) {
    INFO(place);
    torch::jit::Module inner("Inner");
    inner.register_attribute("place", c10::DeviceObjType::get(), c10::Device("cuda:0"));
    inner.register_attribute("word", c10::StringType::get(), std::string("cuda"));
    inner.register_attribute("number", c10::IntType::get(), 1);
    inner.define(
        "def forward(self, x):\n    return torch.wait(fork(self.make, x))\n"
        "def make(self, x):\n    return x + torch.ones([1], device=" +
            place + ")\n",
        std::make_shared<SourceWords>());
    torch::jit::Module outer("Outer");
    outer.register_module("inner", inner);
    outer.define("def forward(self, x):\n    return self.inner.forward(x)\n");
    const TemporaryFolder folder;
    const auto file = folder.path() / "model.pt";
    outer.save(file.string());
    const auto refused = device->Load(file, SpecOf({"x"}, {"y"}));
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.status().message().find("the device \"cuda") == 0);
    const auto model = device->Load(file, SpecForCpu());
    INFO(model.status().ToString());
    REQUIRE(model.ok());
    CHECK(FloatsOf(Succeed(device->Run(**model, BatchOf({{1}}))).outputs[0]) == std::vector<float>{2});
  }
}

TEST_CASE("a module that cannot be frozen is rewritten all the same", "[module_load][baked]") {
  const auto device = CpuWithLimit();
  torch::jit::Module module("M");
  module.register_attribute("calls", c10::IntType::get(), 0);
  module.define(
      "def forward(self, x):\n    self.calls = self.calls + 1\n"
      "    return x.cuda() + torch.full([1], self.calls, dtype=6, device='cuda:0')\n");
  const TemporaryFolder folder;
  module.save((folder.path() / "model.pt").string());
  const auto model = device->Load(folder.path() / "model.pt", SpecForCpu());
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  for (const float calls : {1.0F, 2.0F}) {
    CHECK(FloatsOf(Succeed(device->Run(**model, BatchOf({{1}}))).outputs[0]) == std::vector<float>{1 + calls});
  }
}

TEST_CASE("what cannot be rewritten is refused by name", "[module_load][baked]") {
  const auto device = CpuWithLimit();
  torch::jit::Module module("M");
  module.register_attribute("places", c10::ListType::create(c10::DeviceObjType::get()),
                            c10::List<c10::Device>({c10::Device("cuda:3")}));
  module.define("def forward(self, x):\n    return x.to(self.places[0])\n");
  const TemporaryFolder folder;
  module.save((folder.path() / "model.pt").string());
  const absl::Status listed = device->Load(folder.path() / "model.pt", SpecForCpu()).status();
  CHECK(absl::IsInvalidArgument(listed));
  CHECK(std::string(listed.message()).find("the device \"cuda:3\" is baked into the graph") == 0);
  CHECK(std::string(listed.message()).find("self.places[0]") != std::string::npos);

  const absl::Status calls_cuda =
      RefusalOf(*device, SpecForCpu(), "def forward(self, x):\n    cuda.synchronize(0)\n    return x\n");
  CHECK(std::string(calls_cuda.message()).find("the device \"cuda:0\" is baked into the graph") == 0);
  CHECK(std::string(calls_cuda.message()).find("cuda::synchronize") != std::string::npos);
  // `with torch.cuda.device(1)` would make everything inside run on another card.
  const absl::Status switches =
      RefusalOf(*device, SpecForCpu(), "def forward(self, x):\n    cuda._exchange_device(1)\n    return x\n");
  CHECK(std::string(switches.message()).find("the device \"cuda:1\" is baked into the graph") == 0);
}

TEST_CASE("the loading device's own name, and a device that is only compared, do no harm", "[module_load][baked]") {
  const auto device = CpuWithLimit();
  const char* const source =
      "def forward(self, x):\n    if x.device == torch.device('cuda:0'):\n        x = x + 1\n"
      "    return x.cpu() + torch.ones([1], device=torch.device('cpu')) + torch.zeros([1], device=x.device)\n";
  for (const ModelSpec& spec : {SpecOf({"x"}, {"y"}), SpecForCpu()}) {
    const std::vector<LogEvent> events = RewritesIn([&] {
      const auto model = LoadSource(*device, spec, source);
      CHECK(FloatsOf(Succeed(device->Run(*model, BatchOf({{1}}))).outputs[0]) == std::vector<float>{2});
    });
    CHECK(events.empty());
  }
}

}  // namespace
}  // namespace headroom
