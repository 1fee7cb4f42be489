// The least that a gRPC server can do with a message: what a model that does nothing is held against.
//
//   headroom_echo --address 127.0.0.1:0 --ready-file FILE [--raw]
//
// A callback server of the library's own settings that answers ModelInfer with the bytes that it was sent: each input comes back as
// an output of the same name, type, shape and content. With --raw the messages are not even taken apart: the request's bytes are
// the reply's. Ends at SIGTERM or SIGINT.
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "proto/open_inference.grpc.pb.h"

namespace headroom {
namespace {

class EchoService final : public inference::GRPCInferenceService::CallbackService {
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context, const inference::ModelInferRequest* request,
                                       inference::ModelInferResponse* reply) override {
    reply->set_model_name(request->model_name());
    reply->set_id(request->id());
    for (const auto& input : request->inputs()) {
      auto* const output = reply->add_outputs();
      output->set_name(input.name());
      output->set_datatype(input.datatype());
      *output->mutable_shape() = input.shape();
    }
    for (const std::string& content : request->raw_input_contents()) reply->add_raw_output_contents(content);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class RawEchoService final
    : public inference::GRPCInferenceService::WithRawCallbackMethod_ModelInfer<inference::GRPCInferenceService::Service> {
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override {
    *reply = *request;
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

int Main(int argc, char** argv) {
  std::string address = "127.0.0.1:0";
  std::string ready_file;
  bool raw = false;
  CLI::App app("Answers ModelInfer with what it was sent.");
  app.add_option("--address", address, "HOST:PORT; port 0: a free one")->capture_default_str();
  app.add_option("--ready-file", ready_file, "written when it serves, with the address as \"grpc\"");
  app.add_flag("--raw", raw, "do not take the messages apart");
  CLI11_PARSE(app, argc, argv);
  // Before any thread is made, so that all of them leave the signals to sigwait.
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  std::unique_ptr<grpc::Service> service;
  if (raw) {
    service = std::make_unique<RawEchoService>();
  } else {
    service = std::make_unique<EchoService>();
  }
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service.get());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    std::fprintf(stderr, "headroom_echo: cannot listen on %s\n", address.c_str());
    return 2;
  }
  const std::string at = address.substr(0, address.rfind(':') + 1) + std::to_string(port);
  if (!ready_file.empty()) {
    // Whole or not there at all, for who waits for it.
    const std::string part = ready_file + ".part";
    std::ofstream(part) << nlohmann::json{{"grpc", at}}.dump();
    if (std::rename(part.c_str(), ready_file.c_str()) != 0) return 2;
  }
  std::fprintf(stderr, "headroom_echo: serves on %s\n", at.c_str());
  int signal = 0;
  sigwait(&stop, &signal);
  server->Shutdown();
  return 0;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) { return headroom::Main(argc, argv); }
