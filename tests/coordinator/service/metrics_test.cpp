#include "coordinator/service/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>

#include "parallel/base/check.h"
#include "tests/coordinator/service/raw_connection.h"

namespace headroom::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunStatus running() {
  RunStatus status;
  status.state = RunPhase::kRunning;
  status.generation = 3;
  status.progress.step = 14;
  status.progress.images_per_second = 58.5;
  status.progress.losses = {{"box", 0.125}, {"cls", 2}, {"dfl", 0.5}};
  MemberStatus first;
  first.rank = 0;
  first.state = MemberActivity::kRunning;
  first.heartbeat_age_seconds = 0.25;
  first.measured_peak_bytes = 1024;
  MemberStatus gone;
  gone.rank = 1;
  gone.state = MemberActivity::kGone;
  status.members = {first, gone};
  return status;
}

TEST(Metrics, AgreeWithTheStatus) {
  const std::string text = metrics_text(running(), {{"wrong join token", 7}});
  for (const char* line :
       {"# TYPE headroom_run_state gauge",
        "headroom_run_state{state=\"running\"} 1",
        "headroom_run_state{state=\"failed\"} 0", "headroom_generation 3",
        "headroom_steps 14", "headroom_images_per_second 58.5",
        "headroom_loss{term=\"box\"} 0.125", "headroom_loss{term=\"dfl\"} 0.5",
        "headroom_workers{state=\"gone\"} 1",
        "headroom_heartbeat_age_seconds{rank=\"0\"} 0.25",
        "headroom_peak_bytes{rank=\"0\"} 1024",
        "# TYPE headroom_refused_calls_total counter",
        "headroom_refused_calls_total{reason=\"wrong join token\"} 7"}) {
    EXPECT_THAT(text, HasSubstr(std::string(line) + "\n"));
  }
  EXPECT_THAT(text, Not(HasSubstr("rank=\"1\"")));
}

const MetricsSource kSource{running,
                            [] { return std::map<std::string, int64_t>(); }};

// The address of an endpoint that all tests share, because ending one takes 2
// s.
std::string served_address() {
  static const MetricsEndpoint endpoint("127.0.0.1:0", kSource);
  return "127.0.0.1:" + std::to_string(endpoint.port());
}

TEST(Metrics, AreServedOverHttp) {
  const RawConnection connection(served_address());
  ASSERT_TRUE(connection.connected());
  connection.send_bytes(
      "GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
  const std::string answer = connection.receive_all();
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("headroom_steps 14"));
}

TEST(Metrics, IdleConnectionsDelayOtherReadersOnlyBriefly) {
  const std::string address = served_address();
  std::deque<RawConnection> silent;
  for (int i = 0; i < 300; ++i) {
    silent.emplace_back(address).send_bytes("GET /metr");
  }
  const auto begin = std::chrono::steady_clock::now();
  const RawConnection connection(address);
  connection.send_bytes(
      "GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(connection.receive_all(), HasSubstr("200 OK"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Metrics, APortInUseIsRefused) {
  const std::string taken = served_address();
  try {
    const MetricsEndpoint second(taken, kSource);
    FAIL() << "two on one port";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("cannot listen on " + taken +
                          ": Address already in use: choose another"));
  }
}

}  // namespace
}  // namespace headroom::coordinator
