// Floods of calls by strangers who reach HTTP/2, because there is no TLS: the
// memory of the coordinator's process is bounded, and members are served.
#include <gtest/gtest.h>

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
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
#include "tests/coordinator/service/local_run.h"
#include "tests/coordinator/service/raw_connection.h"

namespace headroom::coordinator {
namespace {

using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;

constexpr const char* kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr int64_t kMostResident = int64_t{256} << 20;

std::string frame(int type, int flags, uint32_t stream,
                  const std::string& payload) {
  std::string bytes;
  for (const int shift : {16, 8, 0}) {
    bytes += static_cast<char>(payload.size() >> shift);
  }
  bytes += static_cast<char>(type);
  bytes += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) {
    bytes += static_cast<char>(stream >> shift);
  }
  return bytes + payload;
}

const std::string kSettings = frame(4, 0, 0, "");
const std::string kSettingsAck = frame(4, 1, 0, "");

std::string text(const std::string& value) {
  return static_cast<char>(value.size()) + value;
}

// Returns the header of a call of GetStatus with a wrong token. If `ends` is
// set, the call ends there and has no message.
std::string call_frame(uint32_t stream, bool ends) {
  constexpr int kEndStream = 1, kEndHeaders = 4;
  return frame(1, kEndHeaders | (ends ? kEndStream : 0), stream,
               "\x83\x86\x04" + text("/headroom.wire.Coordinator/GetStatus") +
                   "\x01" + text("a") + "\x0f\x10" + text("application/grpc") +
                   std::string(1, '\0') + text("te") + text("trailers"));
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

TEST(Greeting, IsCompleteOnceTheClientKnowsTheLimitAndHasTheToken) {
  const std::string begin = kPreface + kSettings;
  const auto read = [](const std::string& bytes, const std::string& token) {
    return read_greeting(bytes, token).greeting;
  };
  EXPECT_EQ(read("", "t"), Greeting::kIncomplete);
  EXPECT_EQ(read("PRI * HT", "t"), Greeting::kIncomplete);
  EXPECT_EQ(read(begin, ""), Greeting::kIncomplete);
  EXPECT_EQ(read(begin + call_frame(1, true), ""), Greeting::kIncomplete);
  EXPECT_EQ(read(begin + frame(8, 0, 0, "1234") + kSettingsAck, ""),
            Greeting::kWelcome);
  EXPECT_EQ(read(begin + kSettingsAck, "grpc"), Greeting::kIncomplete);
  EXPECT_EQ(read(begin + kSettingsAck + call_frame(1, true), "grpc"),
            Greeting::kWelcome);
  EXPECT_EQ(read(begin + call_frame(1, true) + kSettingsAck, "grpc"),
            Greeting::kWelcome);
  const ReadGreeting wrong =
      read_greeting(begin + kSettingsAck + call_frame(259, true), "token");
  EXPECT_EQ(wrong.greeting, Greeting::kWrongToken);
  EXPECT_EQ(wrong.stream, 259u);
  EXPECT_EQ(read(begin + kSettingsAck.substr(0, 8), ""), Greeting::kIncomplete);
  EXPECT_EQ(read("GET / HTTP/1.1\r\n\r\n", ""), Greeting::kNoClient);
  EXPECT_EQ(read(kPreface + kSettingsAck, ""), Greeting::kNoClient);
  EXPECT_EQ(read(kPreface + call_frame(1, true), ""), Greeting::kNoClient);
  EXPECT_EQ(read(begin + "\xff\xff\xff\x06" + std::string(5, '\0'), ""),
            Greeting::kNoClient);
}

class Flood : public ::testing::Test {
 protected:
  void SetUp() override {
    ServerOptions options = LocalRun::options(1, "/runs/exp");
    options.security.token = std::string(64, 't');
    server_ = Server::start(options);
    ours_.token = options.security.token;
  }

  // Strangers attack for some seconds, in several threads; `attack` opens a
  // connection and floods it. Meanwhile a member's calls are answered.
  void expect_bounded(const std::function<void(RawConnection&)>& attack) {
    const auto stub = wire::Coordinator::NewStub(
        wire::make_channel(server_->address(), ours_, {}));
    std::atomic<bool> is_over = false;
    std::vector<std::thread> attackers;
    for (int i = 0; i < 4; ++i) {
      attackers.emplace_back([&] {
        std::vector<std::unique_ptr<RawConnection>> held;
        while (!is_over) {
          held.push_back(std::make_unique<RawConnection>(server_->address()));
          attack(*held.back());
          if (held.size() > 100) held.erase(held.begin());
        }
      });
    }
    int64_t most = 0;
    int answered = 0, asked = 0;
    for (const auto end = SteadyClock::now() + seconds(8);
         SteadyClock::now() < end;) {
      most = std::max(most, resident_bytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (++asked % 10 != 0) continue;
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.set_deadline(std::chrono::system_clock::now() + seconds(5));
      wire::GetStatusResponse response;
      answered += stub->GetStatus(&context, {}, &response).ok() ? 1 : 0;
    }
    is_over = true;
    for (std::thread& attacker : attackers) attacker.join();
    std::printf("resident at most %lld MiB, %d calls of a member answered\n",
                static_cast<long long>(most >> 20), answered);
    EXPECT_LT(most, kMostResident);
    EXPECT_GT(answered, 5);
  }

  // Sends the calls numbered from `first`, in pieces, until the server hangs
  // up.
  static void call_on(const RawConnection& connection, int calls, bool ends,
                      bool resets = false, uint32_t first = 1) {
    constexpr int kAtOnce = 300;
    uint32_t stream = first;
    for (int sent = 0; sent < calls; sent += kAtOnce) {
      std::string bytes;
      for (int i = sent; i < std::min(calls, sent + kAtOnce); ++i) {
        bytes += call_frame(stream, ends);
        if (resets) bytes += frame(3, 0, stream, std::string("\0\0\0\x08", 4));
        stream += 2;
      }
      connection.send_bytes(bytes);
      if (connection.is_closed_by_peer()) return;
    }
  }

  static void acknowledge(const RawConnection& connection) {
    connection.send_bytes(kPreface + kSettings + kSettingsAck);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  std::unique_ptr<Server> server_;
  wire::ChannelSecurity ours_;
};

TEST_F(Flood, OfCallsWithoutAnAcknowledgedLimit) {
  expect_bounded([](const RawConnection& connection) {
    connection.send_bytes(kPreface + kSettings);
    call_on(connection, 35'000, /*ends=*/true);
  });
}

TEST_F(Flood, OfCallsWithAWrongToken) {
  expect_bounded([](const RawConnection& connection) {
    acknowledge(connection);
    call_on(connection, 35'000, /*ends=*/true);
  });
}

// While the message of a call has not arrived, the server does not refuse the
// call, so it stays open.
TEST_F(Flood, OfCallsThatStayOpen) {
  expect_bounded([](const RawConnection& connection) {
    acknowledge(connection);
    call_on(connection, kMostCalls, /*ends=*/false);
  });
}

TEST_F(Flood, OfCallsThatAreTakenBack) {
  expect_bounded([](const RawConnection& connection) {
    acknowledge(connection);
    call_on(connection, 25'000, /*ends=*/false, /*resets=*/true);
  });
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
           {kPreface + kSettings + kSettingsAck + call_frame(1, true),
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
TEST_F(Flood, AWrongTokenIsNamed) {
  wire::ChannelSecurity wrong = ours_;
  wrong.token[0] = 'x';
  const auto stub = wire::Coordinator::NewStub(
      wire::make_channel(server_->address(), wrong, {}));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(20));
  wire::GetStatusResponse response;
  const grpc::Status answer = stub->GetStatus(&context, {}, &response);
  EXPECT_EQ(answer.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(answer.error_message(), "wrong join token");
  EXPECT_TRUE(eventually(
      [&] { return server_->refused_calls()["wrong join token"] == 1; }));
}

}  // namespace
}  // namespace headroom::coordinator
