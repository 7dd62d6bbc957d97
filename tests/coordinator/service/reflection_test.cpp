
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "coordinator/service/server.h"
#include "proto/channel.h"
#include "tests/coordinator/service/local_run.h"

namespace headroom::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Answer {
  grpc::Status status;
  std::string message;
};

// The message ServerReflectionRequest{list_services: ""} is written by hand,
// because Debian has no header for it.
Answer list_services(const std::string& address) {
  grpc::GenericStub stub(wire::make_channel(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(5));
  grpc::CompletionQueue queue;
  const auto stream = stub.PrepareCall(
      &context,
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  void* tag = nullptr;
  bool ok = false;
  stream->StartCall(nullptr);
  queue.Next(&tag, &ok);
  const grpc::Slice request(std::string("\x3a\x00", 2));
  stream->WriteLast(grpc::ByteBuffer(&request, 1), {}, nullptr);
  queue.Next(&tag, &ok);
  grpc::ByteBuffer response;
  stream->Read(&response, nullptr);
  queue.Next(&tag, &ok);
  Answer answer;
  if (ok) {
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(response.Dump(&slices).ok());
    for (const grpc::Slice& slice : slices) {
      answer.message.append(reinterpret_cast<const char*>(slice.begin()),
                            slice.size());
    }
  }
  stream->Finish(&answer.status, nullptr);
  queue.Next(&tag, &ok);
  return answer;
}

TEST(Reflection, ExistsOnlyOnRequest) {
  ServerOptions options = LocalRun::options(1, "/runs/exp");
  const auto silent = Server::start(options);
  EXPECT_EQ(list_services(silent->address()).status.error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  options.debug_reflection = true;
  const auto telling = Server::start(options);
  const Answer answer = list_services(telling->address());
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_THAT(answer.message, HasSubstr("headroom.wire.Coordinator"));
  options.debug_reflection = false;
  const auto later = Server::start(options);
  EXPECT_THAT(list_services(later->address()).message,
              Not(HasSubstr("headroom")))
      << "it was asked for once in this process";
}

}  // namespace
}  // namespace headroom::coordinator
