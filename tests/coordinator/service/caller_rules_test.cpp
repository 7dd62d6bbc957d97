// Tests over a real loopback connection which caller may send which message.
// Some callers are members of other runs or generations, and some send in the
// name of another member.
#include "coordinator/service/caller_rules.h"

#include <gmock/gmock.h>

#include "parallel/base/check.h"
#include "proto/version.h"
#include "tests/coordinator/service/local_run.h"
#include "tests/coordinator/service/raw_client.h"

namespace headroom::coordinator {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(CallerRules, AnotherGenerationIsRefusedByNumber) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  w0->next_assignment();
  EXPECT_THAT([&] { w0->rendezvous(7)->set("k", "v"); },
              ThrowsMessage<CommunicationError>(
                  HasSubstr("the message is of generation 7, the run is at "
                            "generation 1")));
  EXPECT_THAT([&] { w0->rendezvous(2)->get("k", seconds(1)); },
              ThrowsMessage<CommunicationError>(
                  HasSubstr("the message is of generation 2, the run is at "
                            "generation 1")));
}

TEST(CallerRules, EveryStampedCallOfAnotherRunIsAborted) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  w0->next_assignment();
  RawClient raw(run.server->address());
  wire::Stamp foreign;
  foreign.set_generation(1);
  foreign.set_run_digest("0123456789abcdef");
  const auto expect_aborted = [&](auto method, auto request, auto response) {
    *request.mutable_stamp() = foreign;
    const grpc::Status status = raw.call(method, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED)
        << request.GetTypeName();
    EXPECT_EQ(status.error_message(),
              "the message is of run 0123456789abcdef, this coordinator serves "
              "run " +
                  run.registered.run_digest())
        << request.GetTypeName();
  };
  expect_aborted(&Stub::Heartbeat, wire::HeartbeatRequest(),
                 wire::HeartbeatResponse());
  expect_aborted(&Stub::Publish, wire::PublishRequest(),
                 wire::PublishResponse());
  expect_aborted(&Stub::Lookup, wire::LookupRequest(), wire::LookupResponse());
  expect_aborted(&Stub::ReportFailure, wire::ReportFailureRequest(),
                 wire::ReportFailureResponse());
  expect_aborted(&Stub::ReportExit, wire::ReportExitRequest(),
                 wire::ReportExitResponse());
  expect_aborted(&Stub::Commit, wire::CommitRequest(), wire::CommitResponse());
  expect_aborted(&Stub::ReportEvent, wire::ReportEventRequest(),
                 wire::ReportEventResponse());
  expect_aborted(&Stub::Finish, wire::FinishRequest(), wire::FinishResponse());
  EXPECT_EQ(run.state(), "running");
}

// gRPC drops a reply whose headers are too long.
TEST(CallerRules, ALongRefusalIsCutAndArrives) {
  LocalRun run(1);
  RawClient raw(run.server->address());
  wire::ReportFailureRequest request;
  request.mutable_stamp()->set_run_digest(run.registered.run_digest());
  std::string name;
  while (name.size() < 20'000) name += "\u20ac";
  request.set_worker_id(name);
  wire::ReportFailureResponse response;
  const grpc::Status status =
      raw.call(&Stub::ReportFailure, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(),
              ::testing::StartsWith("only worker \u20ac"));
  EXPECT_THAT(status.error_message(), ::testing::EndsWith("\u20ac..."));
  EXPECT_LE(status.error_message().size(), 2000u);
}

// Sends the messages of worker w1 as another member or without the identity of
// a member.
TEST(CallerRules, AWorkerMaySendOnlyForItself) {
  LocalRun run(2);
  const auto w0 = run.worker(0);
  const auto w1 = run.worker(1);
  w0->next_assignment();
  w1->next_assignment();
  wire::Stamp stamp;
  stamp.set_generation(1);
  stamp.set_run_digest(run.registered.run_digest());
  for (const wire::MemberIdentity& who :
       {wire::MemberIdentity(), run.identity("w0"),
        wire::MemberIdentity{"n", "w1", std::string(64, 'a')}}) {
    RawClient raw(run.server->address(), who);
    const auto expect_denied = [&](auto method, auto request, auto response) {
      const grpc::Status status = raw.call(method, request, &response);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED)
          << request.GetTypeName() << ": " << status.error_message();
    };
    wire::ReportFailureRequest failure;
    *failure.mutable_stamp() = stamp;
    failure.set_worker_id("w1");
    failure.set_exit_code(4);
    expect_denied(&Stub::ReportFailure, failure, wire::ReportFailureResponse());
    wire::LeaveGenerationRequest leave;
    *leave.mutable_stamp() = stamp;
    leave.set_worker_id("w1");
    expect_denied(&Stub::LeaveGeneration, leave,
                  wire::LeaveGenerationResponse());
    wire::FinishRequest finish;
    *finish.mutable_stamp() = stamp;
    finish.set_worker_id("w1");
    expect_denied(&Stub::Finish, finish, wire::FinishResponse());
    wire::ReportExitRequest exit;
    *exit.mutable_stamp() = stamp;
    exit.set_node_id("n");
    exit.set_worker_id("w1");
    expect_denied(&Stub::ReportExit, exit, wire::ReportExitResponse());
    wire::HeartbeatRequest heartbeat;
    *heartbeat.mutable_stamp() = stamp;
    heartbeat.set_worker_id("w1");
    expect_denied(&Stub::Heartbeat, heartbeat, wire::HeartbeatResponse());
    wire::DrainRequest drain;
    drain.set_node_id("n");
    expect_denied(&Stub::Drain, drain, wire::DrainResponse());
    wire::RegisterRequest successors;
    successors.set_version(wire::kVersion);
    successors.set_node_id("n");
    successors.add_worker_ids("w0");
    successors.add_worker_ids("mine");
    expect_denied(&Stub::Register, successors, wire::RegisterResponse());
  }
  RawClient nobody(run.server->address());
  wire::PublishRequest key;
  *key.mutable_stamp() = stamp;
  key.set_key("ranks/0");
  wire::PublishResponse published;
  EXPECT_FALSE(nobody.call(&Stub::Publish, key, &published).ok());
  RawClient second(run.server->address(), run.identity("w1"));
  wire::CommitRequest commit;
  *commit.mutable_stamp() = stamp;
  commit.set_step(1'000'000);
  wire::CommitResponse committed;
  EXPECT_EQ(second.call(&Stub::Commit, commit, &committed).error_code(),
            grpc::StatusCode::PERMISSION_DENIED)
      << "it is not rank 0";
  EXPECT_EQ(run.state(), "running");
  EXPECT_EQ(run.server->status().progress.step, 0);
}

wire::HeartbeatRequest beats_of(const LocalRun& run, const std::string& node,
                                const std::vector<std::string>& workers) {
  wire::HeartbeatRequest request;
  request.mutable_stamp()->set_run_digest(run.registered.run_digest());
  request.set_node_id(node);
  for (const std::string& worker_id : workers) {
    wire::WorkerBeat& beat = *request.add_beats();
    beat.set_worker_id(worker_id);
    beat.set_generation(1);
  }
  return request;
}

// A second agent in the run, with workers m0 and m1.
class OtherAgent {
 public:
  explicit OtherAgent(const LocalRun& run)
      : client(run.server->address(), {"m", "", kSecret}) {
    wire::RegisterRequest node;
    node.set_version(wire::kVersion);
    node.set_node_id("m");
    node.add_worker_ids("m0");
    node.add_worker_ids("m1");
    wire::RegisterResponse response;
    EXPECT_TRUE(client.call(&Stub::Register, node, &response).ok());
  }
  static wire::MemberIdentity identity(const std::string& worker_id) {
    return {"m", worker_id, wire::secret_of_worker(kSecret, worker_id)};
  }
  RawClient client;

 private:
  inline static const std::string kSecret = std::string(64, 'm');
};

TEST(CallerRules, AnAgentMaySendOnlyForItsOwnWorkers) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  w0->next_assignment();
  OtherAgent other(run);
  wire::HeartbeatResponse response;
  const grpc::Status foreign = other.client.call(
      &Stub::Heartbeat, beats_of(run, "m", {"m0", "w0"}), &response);
  EXPECT_EQ(foreign.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(foreign.error_message(),
            "only the agent of node n speaks for worker w0");
  // Agent m may not send heartbeats for a worker of another agent either, even
  // together with heartbeats of its own workers.
  wire::HeartbeatRequest as_worker = beats_of(run, "m", {"m0"});
  as_worker.set_worker_id("w0");
  EXPECT_EQ(
      other.client.call(&Stub::Heartbeat, as_worker, &response).error_code(),
      grpc::StatusCode::PERMISSION_DENIED);
  const grpc::Status many = other.client.call(
      &Stub::Heartbeat,
      beats_of(run, "m", std::vector<std::string>(5000, "m0")), &response);
  EXPECT_THAT(many.error_message(),
              HasSubstr("5000 beats is refused: no node has more than"));
  RawClient worker(run.server->address(), run.identity("w0"));
  wire::HeartbeatRequest by_worker = beats_of(run, "n", {"w0"});
  by_worker.set_worker_id("w0");
  EXPECT_EQ(worker.call(&Stub::Heartbeat, by_worker, &response).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

TEST(CallerRules, StaleBeatsAreNamedAndTheOthersCount) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  w0->next_assignment();
  OtherAgent other(run);
  const auto m0 = control::CoordinatorClient::connect(
      run.server->address(), OtherAgent::identity("m0"), "127.0.0.1");
  wire::HeartbeatRequest request = beats_of(run, "m", {"m0", "m1", "gone"});
  request.mutable_beats(1)->set_generation(7);
  wire::HeartbeatResponse response;
  const grpc::Status status =
      other.client.call(&Stub::Heartbeat, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.stale_beats_size(), 2);
  EXPECT_EQ(response.stale_beats(0).worker_id(), "m1");
  EXPECT_EQ(response.stale_beats(0).reason(),
            "the message is of generation 7, the run is at generation 1");
  EXPECT_EQ(response.stale_beats(1).worker_id(), "gone");
  EXPECT_EQ(response.stale_beats(1).reason(),
            "worker gone takes no part in this run (any more)");
}

// Once a generation has begun, each call of its members must name it.
TEST(CallerRules, AMemberThatNamesNoGenerationOrRunIsRefused) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  w0->next_assignment();
  RawClient raw(run.server->address(), run.identity("w0"));
  wire::ReportFailureRequest failure;
  failure.set_worker_id("w0");
  failure.set_exit_code(4);
  wire::ReportFailureResponse response;
  EXPECT_EQ(raw.call(&Stub::ReportFailure, failure, &response).error_code(),
            grpc::StatusCode::ABORTED)
      << "without a stamp";
  failure.mutable_stamp()->set_run_digest(run.registered.run_digest());
  EXPECT_EQ(raw.call(&Stub::ReportFailure, failure, &response).error_code(),
            grpc::StatusCode::ABORTED)
      << "of generation 0";
  EXPECT_EQ(run.state(), "running");
}

}  // namespace
}  // namespace headroom::coordinator
