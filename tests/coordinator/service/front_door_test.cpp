// The front door without TLS: which clients reach gRPC, and what becomes of the
// others.
#include <gtest/gtest.h>

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/service/connections.h"
#include "coordinator/service/front_door.h"
#include "coordinator/service/greeting.h"
#include "coordinator/service/server.h"
#include "proto/channel.h"
#include "proto/coordinator.grpc.pb.h"
#include "tests/coordinator/service/http2_bytes.h"
#include "tests/coordinator/service/local_run.h"
#include "tests/coordinator/service/raw_connection.h"

namespace headroom::coordinator {
namespace {

using std::chrono::seconds;

const std::string kPreface = http2::kPreface;
const std::string kSettings = http2::settings();
const std::string kSettingsAck = http2::settings_ack();

TEST(Greeting, IsCompleteOnceTheClientKnowsTheLimitAndHasTheToken) {
  const std::string begin = kPreface + kSettings;
  const auto read = [](const std::string& bytes, const std::string& token) {
    return read_greeting(bytes, token).greeting;
  };
  EXPECT_EQ(read("", "t"), Greeting::kIncomplete);
  EXPECT_EQ(read("PRI * HT", "t"), Greeting::kIncomplete);
  EXPECT_EQ(read(begin, ""), Greeting::kIncomplete);
  EXPECT_EQ(read(begin + http2::call_frame(1, true), ""),
            Greeting::kIncomplete);
  EXPECT_EQ(read(begin + http2::frame(8, 0, 0, "1234") + kSettingsAck, ""),
            Greeting::kWelcome);
  EXPECT_EQ(read(begin + kSettingsAck, "grpc"), Greeting::kIncomplete);
  EXPECT_EQ(read(begin + kSettingsAck + http2::call_frame(1, true), "grpc"),
            Greeting::kWelcome);
  EXPECT_EQ(read(begin + http2::call_frame(1, true) + kSettingsAck, "grpc"),
            Greeting::kWelcome);
  const ReadGreeting wrong = read_greeting(
      begin + kSettingsAck + http2::call_frame(259, true), "token");
  EXPECT_EQ(wrong.greeting, Greeting::kWrongToken);
  EXPECT_EQ(wrong.stream, 259u);
  EXPECT_EQ(read(begin + kSettingsAck.substr(0, 8), ""), Greeting::kIncomplete);
  EXPECT_EQ(read("GET / HTTP/1.1\r\n\r\n", ""), Greeting::kNoClient);
  EXPECT_EQ(read(kPreface + kSettingsAck, ""), Greeting::kNoClient);
  EXPECT_EQ(read(kPreface + http2::call_frame(1, true), ""),
            Greeting::kNoClient);
  EXPECT_EQ(read(begin + "\xff\xff\xff\x06" + std::string(5, '\0'), ""),
            Greeting::kNoClient);
}

size_t open_descriptors() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

std::chrono::nanoseconds processor_time() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

// Clients with a wrong token, and clients that send only a part of their first
// bytes. Only FrontDoor has a thread, so its processor time can be measured.
class LeftDoor : public ::testing::Test {
 protected:
  using Counts = std::map<std::string, int64_t>;

  // Returns how many connections were refused, by reason.
  static Counts leave(bool hangs_up, std::chrono::milliseconds stranger_time) {
    constexpr int kClients = 10;
    ListenAddress address = parse_listen_address("127.0.0.1:0");
    const SystemClock clock;
    Connections connections({.stranger_time = stranger_time});
    std::mutex mutex;
    Counts refused;
    FrontDoor door(address, connections, clock,
                   {.reads_greetings = true, .token = "token"});
    door.open([](int, int descriptor) { ::close(descriptor); },
              [&](const std::string& why) {
                const std::lock_guard lock(mutex);
                ++refused[why];
              });
    const size_t before = open_descriptors();
    std::deque<RawConnection> clients;
    for (int i = 0; i < kClients; ++i) {
      for (const std::string& bytes :
           {kPreface + kSettings + kSettingsAck + http2::call_frame(1, true),
            std::string("PRI * HT")}) {
        clients.emplace_back(address.to_string()).send_bytes(bytes);
        if (hangs_up) clients.back().end_sending();
      }
    }
    EXPECT_TRUE(eventually([&] {
      return std::ranges::all_of(clients, &RawConnection::is_closed_by_peer);
    }));
    EXPECT_TRUE(eventually([&] {
      return open_descriptors() <= before + clients.size();
    })) << "the door has a client's descriptor";
    const auto used = processor_time();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_LT(processor_time() - used, std::chrono::milliseconds(100));
    door.stop();
    return refused;
  }
};

TEST_F(LeftDoor, ByClientsThatHangUp) {
  EXPECT_EQ(leave(/*hangs_up=*/true, seconds(60)),
            (Counts{{"wrong join token", 10}, {"broken handshake", 10}}));
}

TEST_F(LeftDoor, BySilentClients) {
  EXPECT_EQ(leave(/*hangs_up=*/false, std::chrono::milliseconds(300)),
            (Counts{{"wrong join token", 10}, {"silent connection", 10}}));
}

// FrontDoor sends the status that gRPC would send.
TEST(FrontDoor, AWrongTokenIsNamed) {
  ServerOptions options = LocalRun::options(1, "/runs/exp");
  options.security.token = std::string(64, 't');
  const auto server = Server::start(options);
  wire::ChannelSecurity wrong;
  wrong.token = std::string(64, 'x');
  const auto stub = wire::Coordinator::NewStub(
      wire::make_channel(server->address(), wrong, {}));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(20));
  wire::GetStatusResponse response;
  const grpc::Status answer = stub->GetStatus(&context, {}, &response);
  EXPECT_EQ(answer.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(answer.error_message(), "wrong join token");
  EXPECT_TRUE(eventually(
      [&] { return server->refused_calls()["wrong join token"] == 1; }));
}

}  // namespace
}  // namespace headroom::coordinator
