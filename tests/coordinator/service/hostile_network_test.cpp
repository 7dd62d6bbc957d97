// What a port on a network gets to see: garbage, silence, floods.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <vector>

#include "tests/coordinator/service/local_run.h"
#include "tests/coordinator/service/raw_connection.h"

namespace headroom::coordinator {
namespace {

// A whole run, to see that the coordinator still works.
void expect_a_run(LocalRun& run) {
  const auto w0 = run.worker(0);
  EXPECT_EQ(w0->next_assignment().action, control::Action::kRun);
  w0->rendezvous(1)->set("k", "v");
  EXPECT_EQ(w0->rendezvous(1)->get("k", std::chrono::seconds(1)), "v");
  w0->finish(0, "", "{}", 1);
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
    // Half of them get past HTTP/2's greeting.
    connection.send_bytes(i % 2 == 0 ? bytes : preface + bytes);
  }
  const RawConnection browser(run.server->address());
  browser.send_bytes("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  expect_a_run(run);
}

TEST(HostileNetwork, AHundredIdleConnectionsLeaveItWorking) {
  LocalRun run(1);
  std::vector<std::unique_ptr<RawConnection>> idle;
  for (int i = 0; i < 100; ++i) {
    idle.push_back(std::make_unique<RawConnection>(run.server->address()));
    ASSERT_TRUE(idle.back()->connected());
  }
  expect_a_run(run);
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
  EXPECT_EQ(run.agent->status().state, "running");
  keys->set("late", "v");
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(found, 64);
}

}  // namespace
}  // namespace headroom::coordinator
