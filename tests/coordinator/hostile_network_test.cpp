// What a port on a network gets to see: garbage, silence, floods.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <vector>

#include "tests/coordinator/local_run.h"

namespace headroom {
namespace {

class Connection {
 public:
  explicit Connection(const std::string& address)
      : handle_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const std::string port = address.substr(address.rfind(':') + 1);
    name.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
    connected_ =
        connect(handle_, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0;
  }
  Connection(const Connection&) = delete;
  ~Connection() { close(handle_); }
  bool connected() const { return connected_; }
  void send_bytes(const std::string& bytes) const {
    // The server may hang up at any byte: that is no failure of the test.
    (void)!send(handle_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

 private:
  int handle_;
  bool connected_ = false;
};

// A whole run, to see that the coordinator still works.
void expect_a_run(LocalRun& run) {
  const auto w0 = run.worker(0);
  EXPECT_EQ(w0->next_assignment().action, Action::kRun);
  w0->rendezvous(1)->set("k", "v");
  EXPECT_EQ(w0->rendezvous(1)->get("k", std::chrono::seconds(1)), "v");
  w0->finish(0, "", "{}", 1);
  EXPECT_EQ(w0->next_assignment().action, Action::kExit);
}

TEST(HostileNetwork, GarbageLeavesTheCoordinatorWorking) {
  LocalRun run(1);
  std::mt19937 random(1);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  for (int i = 0; i < 100; ++i) {
    const Connection connection(run.server->address());
    ASSERT_TRUE(connection.connected());
    std::string bytes(1 + random() % 4096, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    // Half of them get past HTTP/2's greeting.
    connection.send_bytes(i % 2 == 0 ? bytes : preface + bytes);
  }
  const Connection browser(run.server->address());
  browser.send_bytes("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  expect_a_run(run);
}

TEST(HostileNetwork, AHundredIdleConnectionsLeaveItWorking) {
  LocalRun run(1);
  std::vector<std::unique_ptr<Connection>> idle;
  for (int i = 0; i < 100; ++i) {
    idle.push_back(std::make_unique<Connection>(run.server->address()));
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
}  // namespace headroom
