// Tests an agent and a command whose coordinator has ended or is busy.
#include "coordinator/service/control_client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <string>

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

// A coordinator that answers after some calls.
class BusyCoordinator final : public wire::Coordinator::Service {
 public:
  grpc::Status Register(grpc::ServerContext*, const wire::RegisterRequest*,
                        wire::RegisterResponse* response) override {
    if (++calls_ <= 3) return {grpc::StatusCode::UNAVAILABLE, "in a moment"};
    response->set_run_directory("/runs/exp");
    return grpc::Status::OK;
  }
  int calls() const { return calls_; }

 private:
  std::atomic<int> calls_ = 0;
};

TEST(ControlClient, ACallToABusyCoordinatorIsRepeated) {
  BusyCoordinator busy;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&busy);
  const auto server = builder.BuildAndStart();
  NodeRegistration node;
  node.node_id = "n";
  node.worker_ids = {"w0"};
  const auto agent =
      ControlClient::connect("127.0.0.1:" + std::to_string(port));
  EXPECT_EQ(agent->register_node(node).run_directory(), "/runs/exp");
  EXPECT_EQ(busy.calls(), 4);
}

// A coordinator that does not know the agent replies with a refusal, so it is
// not silent.
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
