// Tests the service over a real loopback connection, with fake workers.
#include "coordinator/service/server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "parallel/base/check.h"
#include "proto/channel.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/version.h"
#include "tests/coordinator/service/local_run.h"
#include "tests/coordinator/service/raw_client.h"

namespace headroom::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

TEST(Server, TwoWorkersGetTheirRanksAndFindEachOther) {
  LocalRun run(2);
  EXPECT_THAT(run.registered.run_config_yaml(), HasSubstr("yolov5n"));
  EXPECT_EQ(run.registered.run_directory(), "/runs/exp");
  EXPECT_EQ(run.registered.run_digest().size(), 16u);
  const auto w1 = run.worker(1);
  EXPECT_EQ(run.state(), "waiting");
  const auto w0 = run.worker(0);
  const control::Assignment a0 = w0->next_assignment();
  const control::Assignment a1 = w1->next_assignment();
  EXPECT_EQ(a0.action, control::Action::kRun);
  EXPECT_EQ(a0.generation, 1u);
  EXPECT_EQ(a0.rank, 0);
  EXPECT_EQ(a1.rank, 1);
  EXPECT_EQ(a1.local_rank, 1);
  EXPECT_EQ(a1.world_size, 2);
  EXPECT_EQ(a1.local_world_size, 2);
  EXPECT_EQ(a0.plan, a1.plan);
  EXPECT_EQ(a0.plan.layout.data_parallel_size, 2);
  // Settings of "auto" are decided once the agent has registered.
  EXPECT_THAT(run.registered.run_config_yaml(), HasSubstr("precision: auto"));
  EXPECT_THAT(a0.run_config_yaml, HasSubstr("precision: fp32"));
  EXPECT_THAT(a0.run_config_yaml, HasSubstr("device: \"cpu\""));
  EXPECT_EQ(a0.run_config_yaml, a1.run_config_yaml);
  EXPECT_EQ(a0.run_directory, "/runs/exp");
  EXPECT_EQ(a0.reason, "all 2 workers have joined");

  const auto keys0 = w0->rendezvous(1);
  const auto keys1 = w1->rendezvous(1);
  std::string found;
  std::thread waits([&] { found = keys1->get("ranks/0", seconds(5)); });
  std::this_thread::sleep_for(milliseconds(100));
  keys0->set("ranks/0", std::string("a\0b", 3));
  waits.join();
  EXPECT_EQ(found, std::string("a\0b", 3));
  EXPECT_EQ(keys0->get("ranks/0", seconds(5)), found);
}

TEST(Server, AKeyThatIsNeverPublishedIsNamedAfterTheTimeout) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  w0->next_assignment();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT([&] { w0->rendezvous(1)->get("ranks/7", milliseconds(300)); },
              ThrowsMessage<CommunicationError>(HasSubstr(
                  "nobody published rendezvous key 'ranks/7' within ")));
  const auto waited = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(waited, milliseconds(300));
  EXPECT_LT(waited, seconds(3));
}

// A lookup with zero timeout does not wait for the service's next tick.
TEST(Server, ALookupWithZeroTimeoutReturnsAtOnce) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  w0->next_assignment();
  RawClient raw(run.server->address(), run.identity("w0"));
  wire::LookupRequest request;
  request.mutable_stamp()->set_generation(1);
  request.mutable_stamp()->set_run_digest(run.registered.run_digest());
  request.set_key("ranks/7");
  wire::LookupResponse response;
  constexpr int kLooks = 20;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kLooks; ++i) {
    ASSERT_TRUE(raw.call(&Stub::Lookup, request, &response).ok());
    EXPECT_FALSE(response.found());
  }
  // Ticks are 50 ms apart.
  EXPECT_LT(std::chrono::steady_clock::now() - begin,
            kLooks * milliseconds(25));
  w0->rendezvous(1)->set("ranks/7", "there");
  ASSERT_TRUE(raw.call(&Stub::Lookup, request, &response).ok());
  EXPECT_TRUE(response.found());
  EXPECT_EQ(response.value(), "there");
}

// A client repeats a call whose reply was lost.
TEST(Server, AReportThatIsRepeatedIsOneEvent) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  w0->next_assignment();
  RawClient raw(run.server->address(), run.identity("w0"));
  wire::ReportEventRequest request;
  request.mutable_stamp()->set_generation(1);
  request.mutable_stamp()->set_run_digest(run.registered.run_digest());
  request.mutable_event()->set_event("data");
  wire::ReportEventResponse response;
  for (const int64_t report : {1, 1, 2, 1, 2}) {
    request.mutable_event()->set_report(report);
    EXPECT_TRUE(raw.call(&Stub::ReportEvent, request, &response).ok());
  }
  int64_t notes = 0;
  for (const wire::EventRecord& event : run.server->status().events) {
    notes += event.event == EventKind::kData;
  }
  EXPECT_EQ(notes, 2);
}

TEST(Server, AnotherVersionIsRefusedWithBoth) {
  LocalRun run(1);
  RawClient raw(run.server->address());
  wire::RegisterRequest node;
  node.set_version("0.0.9");
  wire::RegisterResponse response;
  const grpc::Status status = raw.call(&Stub::Register, node, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(),
            "coordinator is " + std::string(wire::kVersion) +
                ", this agent is 0.0.9: install the same build on every node");

  wire::WatchRequest worker;
  worker.set_node_id("n");
  worker.set_worker_id("w0");
  grpc::ClientContext context;
  const auto reader = raw.stub().Watch(&context, worker);
  wire::Assignment assignment;
  EXPECT_FALSE(reader->Read(&assignment));
  const grpc::Status refused = reader->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(refused.error_message(),
            "coordinator is " + std::string(wire::kVersion) +
                ", this worker is of no version: install the same build on "
                "every node");
  EXPECT_EQ(run.state(), "waiting");
}

TEST(Server, ATooLargeMessageIsRefusedAndTheRunContinues) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  w0->next_assignment();
  const auto keys = w0->rendezvous(1);
  EXPECT_THAT(
      [&] { keys->set("k", std::string(wire::kMaxMessageBytes, 'x')); },
      ThrowsMessage<CommunicationError>(HasSubstr("bytes, more than 1048576")));
  EXPECT_THROW(keys->set("k", std::string(5 << 20, 'x')), CommunicationError);
  keys->set("k", "v");
  EXPECT_EQ(keys->get("k", seconds(1)), "v");
}

TEST(Server, APortInUseIsOneLine) {
  LocalRun run(1);
  ServerOptions options = LocalRun::options(1, "");
  options.listen = run.server->address();
  EXPECT_THAT([&] { Server::start(options); },
              ThrowsMessage<Error>("[coordinator] cannot listen on " +
                                   run.server->address() +
                                   ": Address already in use: choose another "
                                   "address, or port 0 for any free port"));
}

TEST(Server, WithoutDescriptorsTheSystemsErrorTextIsReported) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const int next = dup(0);
  close(next);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(next);
  setrlimit(RLIMIT_NOFILE, &few);
  std::string words;
  try {
    Server::start(LocalRun::options(1, ""));
  } catch (const Error& error) {
    words = error.what();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(words, HasSubstr("cannot listen on 127.0.0.1:0: Too many open "
                               "files"));
}

TEST(Server, TextFromMembersIsShortAndCannotControlATerminal) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  w0->next_assignment();
  control::RunEvent event;
  event.event = EventKind::kValidation;
  event.reason = "\x1b[2J" + std::string(100'000, 'y');
  w0->report_event(event);
  ASSERT_TRUE(eventually([&] {
    const auto events = run.server->status().events;
    return !events.empty() && events.back().event == EventKind::kValidation;
  }));
  const wire::EventRecord kept = run.server->status().events.back();
  EXPECT_EQ(kept.reason.size(), 4000u);
  EXPECT_THAT(kept.reason, StartsWith("\\x1b[2Jyyy"));
}

TEST(Server, BeyondLoopbackNeedsTheFlag) {
  ServerOptions options = LocalRun::options(1, "");
  options.listen = "0.0.0.0:0";
  try {
    Server::start(options);
    FAIL() << "listened on " << options.listen;
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
    EXPECT_THAT(error.what(), HasSubstr("--insecure-network"));
  }
  options.insecure_network = true;
  EXPECT_THAT(Server::start(options)->address(), StartsWith("0.0.0.0:"));
}

TEST(Server, ARequestWithoutAPlanIsRefusedBeforeListening) {
  ServerOptions options = LocalRun::options(2, "");
  options.config.global_batch_size = 1;
  EXPECT_THAT([&] { Server::start(options); },
              ThrowsMessage<Error>(HasSubstr("(--batch) 1 < data axis 2")));
  options.expected_workers = 0;
  EXPECT_THAT([&] { Server::start(options); },
              ThrowsMessage<Error>(HasSubstr("not 0: use --processes")));
}

TEST(Server, ALostWorkerIsReplacedAndTheNextGenerationBegins) {
  LocalRun run(2);
  const auto w0 = run.worker(0);
  auto w1 = run.worker(1);
  const control::Assignment assignment = w0->next_assignment();
  w1->next_assignment();
  wire::RunProgress progress;
  progress.step = 12;
  w0->commit(12, 0.5, progress);

  w1.reset();  // its stream breaks, as after a kill
  EXPECT_TRUE(eventually([&] { return run.state() == "regrouping"; }));
  const wire::ReportExitResponse order =
      run.agent->report_exit("w1", 137, "reading images\n");
  EXPECT_TRUE(order.restart());
  EXPECT_EQ(order.reason(), "started again at once");
  w0->report_failure({.exit_code = 5,
                      .message = "[communication] peer is gone",
                      .kind = control::FailureKind::kLostPeer,
                      .committed_steps = 12});
  NodeRegistration node;
  node.node_id = "n";
  node.hostname = "h";
  node.worker_ids = {"w0", "w1.1"};
  run.agent->register_successors(node);
  const auto successor = control::CoordinatorClient::connect(
      run.server->address(), run.identity("w1.1"), "127.0.0.1");
  const control::Assignment next = w0->next_assignment();
  EXPECT_EQ(next.action, control::Action::kRun);
  EXPECT_EQ(next.generation, assignment.generation + 1);
  EXPECT_EQ(next.resume_steps, 12);
  EXPECT_EQ(next.resume_checkpoint, "");
  EXPECT_EQ(successor->next_assignment().rank, 1);
  EXPECT_EQ(run.state(), "running");
}

TEST(Server, ASilentWorkerIsLostAfterTwoSecondsAndItsAgentInformed) {
  LocalRun run(1);
  RawClient raw(run.server->address(), run.identity("w0"));
  wire::WatchRequest worker;  // a worker that sends no heartbeat
  worker.set_version(wire::kVersion);
  worker.set_node_id("n");
  worker.set_worker_id("w0");
  grpc::ClientContext context;
  const auto begin = std::chrono::steady_clock::now();
  const auto reader = raw.stub().Watch(&context, worker);
  wire::Assignment assignment;
  ASSERT_TRUE(reader->Read(&assignment));
  EXPECT_EQ(assignment.action(), wire::ACTION_WAIT);
  ASSERT_TRUE(reader->Read(&assignment));
  EXPECT_EQ(assignment.action(), wire::ACTION_RUN);
  EXPECT_TRUE(eventually(
      [&] { return !run.agent->node_orders().lost_worker_ids.empty(); }));
  const auto waited = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(waited, milliseconds(1900));
  EXPECT_LT(waited, seconds(10));
  EXPECT_EQ(run.agent->node_orders().lost_worker_ids,
            std::vector<std::string>{"w0"});
  EXPECT_EQ(run.server->status().reason,
            "0 of 1 workers are there, 1 is coming");
  context.TryCancel();
  reader->Finish();
}

TEST(Server, TheHealthServiceReportsServing) {
  LocalRun run(1);
  // grpc.health.v1.Health/Check: an empty request, status 1 is SERVING.
  const grpc::Slice empty;
  const grpc::ByteBuffer request(&empty, 1);
  grpc::GenericStub stub(wire::make_channel(run.server->address()));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(
      &context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_TRUE(status.ok()) << status.error_message();
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(answer.Dump(&slices).ok());
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(std::string(slices[0].begin(), slices[0].end()),
            std::string("\x08\x01"));
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

TEST(Server, ALookupEndsWhenItsRunDoes) {
  LocalRun run(2);
  const auto w0 = run.worker(0);
  auto w1 = run.worker(1);
  w0->next_assignment();
  std::thread dies([&] {
    std::this_thread::sleep_for(milliseconds(100));
    w1.reset();
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(
      [&] { w0->rendezvous(1)->get("ranks/1", seconds(60)); },
      ThrowsMessage<CommunicationError>(HasSubstr("the run is regrouping")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
  dies.join();
}

TEST(Server, ADrainReachesTheWorkersWithTheirHeartbeats) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  w0->next_assignment();
  EXPECT_FALSE(w0->stop_requested());
  run.agent->drain("Ctrl-C");
  EXPECT_TRUE(eventually([&] { return w0->stop_requested(); }));
  EXPECT_TRUE(
      eventually([&] { return run.agent->node_orders().stop_requested; }));
  w0->finish(
      {.exit_code = 130, .reason = "interrupted after 3 steps", .step = 3});
  EXPECT_EQ(w0->next_assignment().action, control::Action::kExit);
  EXPECT_EQ(run.server->status().exit_code, 130);
}

TEST(Server, AFinishedRunEndsOnceAllMembersAreInformed) {
  LocalRun run(2);
  auto w0 = run.worker(0);
  auto w1 = run.worker(1);
  w0->next_assignment();
  w1->next_assignment();
  w0->finish({.exit_code = 0, .result_json = "{\"map50\":0.8}", .step = 100});
  EXPECT_EQ(w0->next_assignment().action, control::Action::kExit);
  EXPECT_EQ(w1->next_assignment().action, control::Action::kExit);
  EXPECT_FALSE(run.server->wait_until_over(milliseconds(300)));
  const auto begin = std::chrono::steady_clock::now();
  w0.reset();
  w1.reset();
  EXPECT_TRUE(run.server->wait_until_over(seconds(10)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(8));
  const RunStatus status = run.agent->status();
  EXPECT_TRUE(status.over());
  EXPECT_EQ(status.result_json, "{\"map50\":0.8}");
  EXPECT_EQ(status.reason, "finished after 100 steps");
  EXPECT_EQ(status.version, wire::kVersion);
}

TEST(Server, StopEndsTheRun) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  w0->next_assignment();
  run.agent->stop("asked");
  EXPECT_EQ(w0->next_assignment().action, control::Action::kExit);
  EXPECT_EQ(run.server->status().reason, "the coordinator was stopped: asked");
}

TEST(Server, FollowersGetEveryEventOnceInOrderUpToTheEnd) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  std::vector<std::string> seen;
  std::string result;
  const auto client = ControlClient::connect(run.server->address());
  std::thread follower([&] {
    client->stream_events(0, [&](const wire::EventRecord& event) {
      EXPECT_EQ(event.sequence, static_cast<int64_t>(seen.size()) + 1);
      seen.push_back(to_string(event.event));
      if (event.event != EventKind::kRunOver) return true;
      result = client->status().result_json;
      return false;
    });
  });
  w0->next_assignment();
  control::RunEvent event;
  event.event = EventKind::kCheckpoint;
  event.step = 4;
  event.reason = "bytes \xff are no text";
  w0->report_event(event);
  w0->finish({.exit_code = 0, .result_json = "{}", .step = 4});
  follower.join();
  EXPECT_EQ(seen, (std::vector<std::string>{"join", "devices", "generation",
                                            "plan", "checkpoint", "run_over"}));
  EXPECT_EQ(result, "{}");
}

TEST(Server, EventsReachTheRunDirectoryOnceItExists) {
  std::string name = testing::TempDir() + "headroom-run-XXXXXX";
  const std::filesystem::path folder = mkdtemp(name.data());
  const std::filesystem::path directory = folder / "exp";
  {
    LocalRun run(1, directory.string());
    const auto w0 = run.worker(0);
    w0->next_assignment();
    EXPECT_TRUE(eventually([&] { return run.state() == "running"; }));
    EXPECT_FALSE(std::filesystem::exists(directory));
    std::filesystem::create_directories(directory / "weights");
    w0->finish({.exit_code = 0, .result_json = "{}", .step = 4});
  }
  std::ifstream file(directory / "events.jsonl");
  std::vector<std::string> events;
  for (std::string line; std::getline(file, line);) {
    const auto object = nlohmann::json::parse(line);
    EXPECT_TRUE(object.contains("step") && object.contains("rank") &&
                object.contains("reason") && object.contains("time"));
    events.push_back(object["event"]);
  }
  EXPECT_EQ(events, (std::vector<std::string>{"join", "devices", "generation",
                                              "plan", "run_over"}));
  std::filesystem::remove_all(folder);
}

// Keys are published in any order, one of them only after a lookup waits for
// it.
TEST(Server, OneReplyHoldsManyKeys) {
  LocalRun run(2);
  const auto w0 = run.worker(0);
  const auto w1 = run.worker(1);
  w0->next_assignment();
  w1->next_assignment();
  const auto keys = w1->rendezvous(1);
  for (const char* rank : {"3", "0", "1"}) {
    keys->set(std::string("ranks/") + rank, std::string("of ") + rank);
  }
  std::vector<std::string> found;
  std::atomic<bool> has_found = false;
  std::thread lookup([&] {
    found = w0->rendezvous(1)->get_all("ranks/", 4, seconds(20));
    has_found = true;
  });
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_FALSE(has_found);
  keys->set("ranks/2", "of 2");
  lookup.join();
  EXPECT_EQ(found, (std::vector<std::string>{"of 0", "of 1", "of 2", "of 3"}));
  EXPECT_THAT(
      [&] { w0->rendezvous(1)->get_all("ranks/", 5, milliseconds(200)); },
      ThrowsMessage<CommunicationError>(HasSubstr(
          "nobody published rendezvous key 'ranks/0' to 'ranks/4' within ")));
}

TEST(Server, StopsWhileClientsWait) {
  auto run = std::make_unique<LocalRun>(2);
  const auto w0 = run->worker(0, seconds(2));
  const auto w1 = run->worker(1, seconds(2));
  w0->next_assignment();
  w1->next_assignment();
  const auto client = ControlClient::connect(run->server->address());
  std::thread follower([&] {
    client->stream_events(0, [](const wire::EventRecord&) { return true; });
  });
  std::thread lookup([&] {
    EXPECT_THROW(w0->rendezvous(1)->get("never", seconds(2)),
                 CommunicationError);
  });
  std::this_thread::sleep_for(milliseconds(200));
  const auto begin = std::chrono::steady_clock::now();
  run->server->stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(8));
  follower.join();
  lookup.join();
  EXPECT_THROW(w1->next_assignment(), CommunicationError);
}

}  // namespace
}  // namespace headroom::coordinator
