// RawClient: a client that sends calls which the two clients of the project
// never make.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "proto/channel.h"
#include "proto/coordinator.grpc.pb.h"

namespace headroom::coordinator {

using Stub = wire::Coordinator::Stub;

class RawClient {
 public:
  explicit RawClient(const std::string& address,
                     const wire::MemberIdentity& identity = {})
      : stub_(wire::Coordinator::NewStub(
            wire::make_channel(address, {}, identity))) {}
  template <typename Method, typename Request, typename Response>
  grpc::Status call(Method method, const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(5));
    return (stub_.get()->*method)(&context, request, response);
  }
  wire::Coordinator::Stub& stub() { return *stub_; }

 private:
  std::unique_ptr<wire::Coordinator::Stub> stub_;
};

}  // namespace headroom::coordinator
