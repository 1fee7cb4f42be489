#include <catch2/catch.hpp>
#include <fstream>
#include <mutex>
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

TEST_CASE("a device baked into the graph is refused, naming it, the operation and the line", "[module_load][baked]") {
  const auto device = CpuWithLimit();
  struct Case {
    std::string body;
    std::string device;
    std::string operation;
    std::string line;
  };
  for (const Case& c : std::vector<Case>{
           {"    return x.to(torch.device('cuda:0'))\n", "cuda:0", "aten::to", "x.to(torch.device('cuda:0'))"},
           {"    return x.to('cuda')\n", "cuda", "aten::to", "x.to('cuda')"},
           {"    return x.cuda()\n", "cuda", "aten::cuda", "x.cuda()"},
           {"    if x.size(0) > 1000:\n        x = x + torch.zeros([1], device='cuda:1')\n    return x\n", "cuda:1", "aten::zeros",
            "torch.zeros([1], device='cuda:1')"},
           {"    return x.to(torch.device('cuda', 1))\n", "cuda:1", "aten::to", "x.to(torch.device('cuda', 1))"},
           {"    return self.hidden(x)\ndef hidden(self, x):\n    return x + torch.arange(3, device='cuda')\n", "cuda",
            "aten::arange", "torch.arange(3, device='cuda')"},
       }) {
    const absl::Status status = RefusalOf(*device, SpecOf({"x"}, {"y"}), "def forward(self, x):\n" + c.body);
    const std::string text(status.message());
    INFO(text);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(text.find("the device \"" + c.device + "\" is baked into the graph, which cannot run on \"cpu\": " + c.operation) == 0);
    CHECK(text.find(c.line) != std::string::npos);
  }
}

TEST_CASE("a device that is an attribute of a submodule is found", "[module_load][baked]") {
  const auto device = CpuWithLimit();
  torch::jit::Module inner("Inner");
  inner.register_attribute("place", c10::DeviceObjType::get(), c10::Device("cuda:0"));
  inner.define("def forward(self, x):\n    return x + torch.zeros([1], device=self.place)\n");
  torch::jit::Module outer("Outer");
  outer.register_module("inner", inner);
  outer.define("def forward(self, x):\n    return self.inner.forward(x)\n");
  const TemporaryFolder folder;
  outer.save((folder.path() / "model.pt").string());
  const auto model = device->Load(folder.path() / "model.pt", SpecOf({"x"}, {"y"}));
  REQUIRE_FALSE(model.ok());
  CHECK(model.status().message().find("the device \"cuda:0\" is baked into the graph") == 0);
}

TEST_CASE("the loading device's own name, and a device that is only compared, do no harm", "[module_load][baked]") {
  const auto device = CpuWithLimit();
  const auto model =
      LoadSource(*device, SpecOf({"x"}, {"y"}),
                 "def forward(self, x):\n    if x.device == torch.device('cuda:0'):\n        x = x + 1\n"
                 "    return x.cpu() + torch.ones([1], device=torch.device('cpu')) + torch.zeros([1], device=x.device)\n");
  CHECK(FloatsOf(Succeed(device->Run(*model, BatchOf({{1}}))).outputs[0]) == std::vector<float>{2});
}

}  // namespace
}  // namespace headroom
