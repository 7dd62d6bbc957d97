// An agent or a command whose coordinator is gone or busy.
#include "coordinator/service/control_client.h"

#include <gmock/gmock.h>

#include <chrono>

#include "coordinator/service/server.h"
#include "parallel/base/check.h"
#include "proto/channel.h"
#include "proto/coordinator.grpc.pb.h"
#include "tests/coordinator/service/local_run.h"

namespace headroom::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ControlClient, ARegistrationGivesUpAfterItsTimeout) {
  const auto agent = ControlClient::connect("127.0.0.1:1");
  EXPECT_THAT([&] { agent->register_node({}, milliseconds(300)); },
              ThrowsMessage<CommunicationError>(
                  HasSubstr("registering with the coordinator at "
                            "127.0.0.1:1: no coordinator answers at "
                            "127.0.0.1:1: Connection refused")));
}

// Another client of the same host has used up the budget of newcomers.
TEST(ControlClient, ABusyCoordinatorIsAskedAgain) {
  const auto server = Server::start(LocalRun::options(1, "/runs/exp"));
  const auto stub =
      wire::Coordinator::NewStub(wire::make_channel(server->address()));
  int refused = 0;
  while (refused < 200) {
    const wire::RegisterRequest request;
    wire::RegisterResponse response;
    grpc::ClientContext context;
    const grpc::Status status = stub->Register(&context, request, &response);
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) ++refused;
  }
  NodeRegistration node;
  node.node_id = "n";
  node.worker_ids = {"w0"};
  const auto agent = ControlClient::connect(server->address());
  EXPECT_EQ(agent->register_node(node).run_directory(), "/runs/exp");
}

// A coordinator that does not know the agent answers, so it is not silent.
TEST(ControlClient, ARefusalOfHeartbeatsIsReported) {
  ServerOptions options = LocalRun::options(1, "/runs/exp");
  auto server = Server::start(options);
  options.listen = server->address();
  NodeRegistration node;
  node.node_id = "n";
  node.worker_ids = {"w0"};
  const auto agent = ControlClient::connect(server->address());
  agent->register_node(node);
  EXPECT_EQ(agent->node_orders().refusal, "");
  server.reset();
  server = Server::start(options);
  EXPECT_TRUE(eventually([&] { return agent->node_orders().refusal != ""; }));
  EXPECT_GT(agent->node_orders().silence_seconds, 0);
}

TEST(ControlClient, WithoutAServerACallIsACommunicationErrorAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const auto client = ControlClient::connect("127.0.0.1:1");
  EXPECT_THROW(client->status(), CommunicationError);
  EXPECT_THROW(client->drain(""), CommunicationError);
  EXPECT_THROW(client->stream_events(0, [](const auto&) { return true; }),
               CommunicationError);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
}

}  // namespace
}  // namespace headroom::coordinator
