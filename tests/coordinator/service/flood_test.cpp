// Floods of calls by strangers who reach HTTP/2, because there is no TLS: the
// memory of the coordinator's process is bounded, and members are served.
#include <gtest/gtest.h>

#include <malloc.h>
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
#include "parallel/base/check.h"
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

constexpr int kEndStream = 1, kEndHeaders = 4;

std::string header_of_call(const std::string& path) {
  return "\x83\x86\x04" + text(path) + "\x01" + text("a") + "\x0f\x10" +
         text("application/grpc") + std::string(1, '\0') + text("te") +
         text("trailers");
}

// Returns the header of a call of GetStatus with a wrong token. If `ends` is
// set, the call ends there and has no message.
std::string call_frame(uint32_t stream, bool ends) {
  return frame(1, kEndHeaders | (ends ? kEndStream : 0), stream,
               header_of_call("/headroom.wire.Coordinator/GetStatus"));
}

// As call_frame(), with nearly as many bytes of headers as gRPC accepts.
std::string long_call_frame(uint32_t stream) {
  std::string headers = header_of_call("/headroom.wire.Coordinator/GetStatus");
  for (int i = 0; i < 28; ++i) {
    headers += std::string(1, '\0') + text("h") + text(std::string(90, 'v'));
  }
  return frame(1, kEndHeaders, stream, headers);
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

// What a stranger needs to reach gRPC.
struct Mode {
  std::string name;
  bool has_token = true;
  bool has_reflection = false;
};

class Flood : public ::testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    // Of a large run, where most strangers are served at one time.
    ServerOptions options = LocalRun::options(128, "/runs/exp");
    options.config.global_batch_size = 128;
    if (GetParam().has_token) options.security.token = std::string(64, 't');
    options.debug_reflection = GetParam().has_reflection;
    server_ = Server::start(options);
    wire::ChannelSecurity ours;
    ours.token = options.security.token;
    wire::set_channel_security(ours);
    member_ = ControlClient::connect(server_->address());
    NodeRegistration node;
    node.node_id = "n";
    node.hostname = "h";
    node.worker_ids = {"w0"};
    member_->register_node(node);
  }
  ~Flood() override { wire::set_channel_security({}); }

  // Strangers attack for some seconds, in several threads; `attack` opens a
  // connection and floods it. Meanwhile a member's calls are answered.
  void expect_bounded(const std::function<void(RawConnection&)>& attack) {
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
    ::malloc_trim(0);  // of the tests before
    const int64_t before = resident_bytes();
    int64_t most = 0;
    int answered = 0, asked = 0;
    for (const auto end = SteadyClock::now() + kTime;
         SteadyClock::now() < end;) {
      most = std::max(most, resident_bytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (++asked % 10 != 0) continue;
      try {
        answered += member_->status().state == RunPhase::kWaiting ? 1 : 0;
      } catch (const CommunicationError&) {  // too late, on a busy machine
      }
    }
    is_over = true;
    for (std::thread& attacker : attackers) attacker.join();
    std::printf(
        "resident %lld MiB, then at most %lld MiB, %d calls of a "
        "member answered\n",
        static_cast<long long>(before >> 20),
        static_cast<long long>(most >> 20), answered);
    EXPECT_LT(most, kMostResident);
    // Strangers whom gRPC serves may take all of a small machine's time.
    if (GetParam().has_token && !GetParam().has_reflection) {
      EXPECT_GT(answered, 0);
    }
  }

  // Sends the calls numbered from `first`, in pieces, until the server hangs
  // up. `after` follows each call.
  static void call_on(const RawConnection& connection, int calls, bool ends,
                      const std::function<std::string(uint32_t)>& after = {},
                      uint32_t first = 1) {
    constexpr int kAtOnce = 300;
    uint32_t stream = first;
    for (int sent = 0; sent < calls; sent += kAtOnce) {
      std::string bytes;
      for (int i = sent; i < std::min(calls, sent + kAtOnce); ++i) {
        bytes += call_frame(stream, ends);
        if (after) bytes += after(stream);
        stream += 2;
      }
      connection.send_bytes(bytes);
      if (connection.is_closed_by_peer()) return;
    }
  }

  static void acknowledge(const RawConnection& connection,
                          const std::string& settings = kSettings) {
    connection.send_bytes(kPreface + settings + kSettingsAck);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  static constexpr seconds kTime{3};
  std::unique_ptr<Server> server_;
  std::unique_ptr<ControlClient> member_;
};

// The message of GetStatus, which is empty, and the end of the call.
std::string empty_message(uint32_t stream) {
  return frame(0, 1, stream, std::string(5, '\0'));
}

std::string reset(uint32_t stream) {
  return frame(3, 0, stream, std::string("\0\0\0\x08", 4));
}

TEST_P(Flood, OfCallsWithoutAnAcknowledgedLimit) {
  expect_bounded([](const RawConnection& connection) {
    connection.send_bytes(kPreface + kSettings);
    call_on(connection, 35'000, /*ends=*/true);
  });
}

TEST_P(Flood, OfCallsWithAWrongToken) {
  expect_bounded([](const RawConnection& connection) {
    acknowledge(connection);
    call_on(connection, 35'000, /*ends=*/true);
  });
}

// While the message of a call has not arrived, the server does not refuse the
// call, so it stays open.
TEST_P(Flood, OfCallsThatStayOpen) {
  expect_bounded([](const RawConnection& connection) {
    acknowledge(connection);
    call_on(connection, kMostCalls, /*ends=*/false);
  });
}

TEST_P(Flood, OfCallsThatAreTakenBack) {
  expect_bounded([](const RawConnection& connection) {
    acknowledge(connection);
    call_on(connection, 25'000, /*ends=*/false, reset);
  });
}

// Without a token the first call is accepted. Then each call sends most of a
// long message and does not end.
TEST_P(Flood, OfMessagesThatAreIncomplete) {
  expect_bounded([](const RawConnection& connection) {
    acknowledge(connection);
    call_on(connection, 1, /*ends=*/false, empty_message);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    call_on(
        connection, kMostCalls - 1, /*ends=*/false,
        [](uint32_t stream) {
          std::string begin("\0\0\x0f\xff\xff", 5);
          return frame(0, 0, stream, begin + std::string(16'000, 'x'));
        },
        /*first=*/3);
  });
}

// The client has no room for answers.
TEST_P(Flood, OfAnswersThatAreNotTaken) {
  const std::string no_room = frame(4, 0, 0, std::string("\0\x04\0\0\0\0", 6));
  expect_bounded([&](const RawConnection& connection) {
    acknowledge(connection, no_room);
    call_on(connection, kMostCalls, /*ends=*/false, empty_message);
  });
}

TEST_P(Flood, OfCallsWithLongHeaders) {
  expect_bounded([](const RawConnection& connection) {
    acknowledge(connection);
    call_on(connection, 1, /*ends=*/false, empty_message);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::string bytes;
    for (uint32_t stream = 3; stream < 2 * kMostCalls; stream += 2) {
      bytes += long_call_frame(stream);
    }
    connection.send_bytes(bytes);
  });
}

// Without a token and with reflection the bound does not hold for all floods
// yet (deploy/guide/decisions/coordinator.md), so these modes are not tested
// here.
INSTANTIATE_TEST_SUITE_P(, Flood,
                         ::testing::Values(Mode{"WithAToken", true, false}),
                         [](const auto& mode) { return mode.param.name; });

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
