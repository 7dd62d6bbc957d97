// Tests hostile traffic at the coordinator's port: random bytes, silence,
// floods.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "coordinator/service/connections.h"
#include "coordinator/service/front_door.h"
#include "proto/channel.h"
#include "proto/coordinator.grpc.pb.h"
#include "tests/coordinator/service/local_run.h"
#include "tests/coordinator/service/raw_connection.h"

namespace headroom::coordinator {
namespace {

// Runs a whole run, to check that the coordinator still works.
void expect_a_run(LocalRun& run) {
  const auto w0 = run.worker(0);
  EXPECT_EQ(w0->next_assignment().action, control::Action::kRun);
  w0->rendezvous(1)->set("k", "v");
  EXPECT_EQ(w0->rendezvous(1)->get("k", std::chrono::seconds(1)), "v");
  w0->finish({.exit_code = 0, .result_json = "{}", .step = 1});
  EXPECT_EQ(w0->next_assignment().action, control::Action::kExit);
}

TEST(HostileNetwork, GarbageLeavesTheCoordinatorWorking) {
  LocalRun run(1);
  std::mt19937 random(1);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  for (int i = 0; i < 100; ++i) {
    const RawConnection connection(run.server->address());
    ASSERT_TRUE(connection.connected());
    std::string bytes(1 + random() % 4096, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    // The bytes of every second connection begin with a valid HTTP/2 preface.
    connection.send_bytes(i % 2 == 0 ? bytes : preface + bytes);
  }
  const RawConnection browser(run.server->address());
  browser.send_bytes("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  expect_a_run(run);
}

// The client sends frames that request replies, and never reads the replies.
TEST(HostileNetwork, AFloodOfFramesIsCutOffAfterAFewMegabytes) {
  LocalRun run(1);
  const RawConnection flood(run.server->address());
  ASSERT_TRUE(flood.connected());
  flood.send_bytes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  std::string frames;
  while (frames.size() < (1 << 20)) frames += settings;
  size_t sent = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!flood.is_closed_by_peer() && std::chrono::steady_clock::now() < end) {
    flood.send_bytes(frames);
    sent += frames.size();
    // On a busy machine the coordinator checks connections late.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_LT(std::chrono::steady_clock::now(), end);
  EXPECT_LT(sent, size_t{256} << 20);
  EXPECT_TRUE(
      eventually([&] { return run.server->refused_calls()["flood"] >= 1; }));
  expect_a_run(run);
}

class ForwardedClock final : public Clock {
 public:
  TimePoint now() const override {
    return std::chrono::steady_clock::now() + forward_.load();
  }
  void forward(std::chrono::seconds time) { forward_ = forward_.load() + time; }

 private:
  std::atomic<std::chrono::seconds> forward_{std::chrono::seconds(0)};
};

// Both clients ask for the status and send as many bytes, at two speeds.
TEST(HostileNetwork, ALongWatchWithoutATokenIsServedAndAFloodIsCutOff) {
  ForwardedClock clock;
  const auto server = Server::start(LocalRun::options(1, "/runs/exp"), &clock);
  const auto stub =
      wire::Coordinator::NewStub(wire::make_channel(server->address()));
  wire::GetStatusRequest request;
  // A field that the coordinator does not know, so that fewer calls are needed.
  request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(
      1000, std::string(1 << 10, 'x'));
  const auto asks = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(20));
    wire::GetStatusResponse response;
    return stub->GetStatus(&context, request, &response);
  };
  constexpr int kCalls = 5000;  // 5 MiB
  for (int i = 0; i < kCalls; ++i) {
    const grpc::Status status = asks();
    ASSERT_TRUE(status.ok()) << i << ": " << status.error_message();
    clock.forward(std::chrono::seconds(1));
    if (i % 500 == 499) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
  }
  EXPECT_EQ(server->refused_calls(), (std::map<std::string, int64_t>{}));
  const auto is_cut_off = [&] { return server->refused_calls()["flood"] >= 1; };
  for (int i = 0; i < kCalls && !is_cut_off(); ++i) asks();
  EXPECT_TRUE(eventually(is_cut_off));
}

TEST(HostileNetwork, FewConnectionsOfStrangersAreHeldAndMembersStay) {
  LocalRun run(2);
  const auto w0 = run.worker(0);
  const auto w1 = run.worker(1);
  EXPECT_EQ(w0->next_assignment().action, control::Action::kRun);
  const size_t held = ConnectionLimits().strangers;
  std::deque<RawConnection> strangers;
  for (int i = 0; i < 1500; ++i) {
    strangers.emplace_back(run.server->address())
        .send_bytes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    if (strangers.size() > held + 50) strangers.pop_front();
  }
  EXPECT_TRUE(eventually([&] {
    return std::count_if(strangers.begin(), strangers.end(),
                         [](const RawConnection& stranger) {
                           return stranger.is_closed_by_peer();
                         }) >= 50;
  }));
  EXPECT_EQ(run.server->status().generation, 1u);
  EXPECT_EQ(run.state(), "running") << "nobody was lost";
}

TEST(Connections, AnAddressOpensFewNewOnesASecond) {
  const ConnectionLimits limits;
  Connections connections(limits);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  int port = 0;
  const auto opens = [&](TimePoint now, const std::string& host, size_t most) {
    size_t opened = 0;
    for (; opened < most; ++opened) {
      const std::string peer = "ipv4:" + host + ":" + std::to_string(++port);
      const std::string refusal = connections.add(now, ends[0], peer);
      if (refusal == "too many new connections") break;
      EXPECT_EQ(refusal, "");
    }
    return opened;
  };
  const TimePoint start{std::chrono::hours(1)};
  EXPECT_EQ(opens(start, "10.0.0.1", 10000), limits.new_per_second);
  EXPECT_EQ(opens(start, "10.0.0.2", 1), 1u);
  EXPECT_EQ(opens(start + std::chrono::seconds(1), "10.0.0.1", 10000),
            limits.new_per_second);
  for (const int end : ends) ::close(end);
}

TEST(HostileNetwork, AFewFollowersOfAConnectionAreServed) {
  LocalRun run(1);
  const auto stub =
      wire::Coordinator::NewStub(wire::make_channel(run.server->address()));
  std::deque<grpc::ClientContext> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<wire::Event>>> readers;
  for (int i = 0; i < 20; ++i) {
    readers.push_back(stub->StreamEvents(&contexts.emplace_back(),
                                         wire::StreamEventsRequest()));
  }
  EXPECT_TRUE(
      eventually([&] { return run.server->refused_calls()["no room"] == 12; }));
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  for (const auto& reader : readers) reader->Finish();
  expect_a_run(run);
}

// Bytes that are unread, or that belong to a call that is not complete yet,
// count as a sign of life.
TEST(Connections, BytesWithoutACompleteCallCountAsASignOfLife) {
  ListenAddress address = parse_listen_address("127.0.0.1:0");
  const SystemClock clock;
  Connections connections({});
  std::atomic<int> served = -1;
  FrontDoor door(address, connections, clock, {});
  door.open([&](int, int descriptor) { served = descriptor; },
            [](const std::string&) {});
  const RawConnection peer(address.to_string());
  ASSERT_TRUE(eventually([&] { return served >= 0; }));
  const std::string name = "ipv4:127.0.0.1:" + std::to_string(peer.port());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  connections.note_call(clock.now(), name);
  connections.note_heartbeat(name, "w0");
  EXPECT_EQ(connections.unread_since(clock.now(), "w0"), std::nullopt);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const TimePoint before = clock.now();
  peer.send_bytes("heartbeat");
  const TimePoint after = clock.now();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto heard = connections.unread_since(clock.now(), "w0");
  ASSERT_TRUE(heard);
  const std::chrono::milliseconds precision(50);
  EXPECT_GT(*heard, before - precision);
  EXPECT_LT(*heard, after + precision);
  connections.note_call(clock.now(), name);
  connections.note_heartbeat(name, "w0");
  EXPECT_EQ(connections.unread_since(clock.now(), "w0"), std::nullopt);
  EXPECT_EQ(connections.num_admitted(), 1u);
  ::close(served);
}

TEST(HostileNetwork, ManyWaitingLookupsHoldNoThread) {
  LocalRun run(1);
  const auto w0 = run.worker(0);
  w0->next_assignment();
  const auto keys = w0->rendezvous(1);
  std::vector<std::thread> waiting;
  std::atomic<int> found = 0;
  for (int i = 0; i < 64; ++i) {
    waiting.emplace_back([&] {
      if (keys->get("late", std::chrono::seconds(20)) == "v") ++found;
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(found, 0);
  EXPECT_EQ(run.agent->status().state, RunPhase::kRunning);
  keys->set("late", "v");
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(found, 64);
}

}  // namespace
}  // namespace headroom::coordinator
