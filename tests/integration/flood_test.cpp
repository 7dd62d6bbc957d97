// Floods by strangers, one after another, at a coordinator in a process of its
// own: its memory is bounded, members are served meanwhile, and a slow client
// can join afterwards.
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/service/certificates.h"
#include "coordinator/service/control_client.h"
#include "coordinator/service/greeting.h"
#include "parallel/base/check.h"
#include "proto/channel.h"
#include "tests/coordinator/service/cuttable_wire.h"
#include "tests/coordinator/service/http2_bytes.h"
#include "tests/coordinator/service/raw_connection.h"
#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
namespace http2 = coordinator::http2;
using coordinator::kMostCalls;
using coordinator::RawConnection;
using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr int64_t kMostResident = int64_t{256} << 20;

// What one connection of a stranger does.
using Attack = std::function<void(const RawConnection&)>;

struct Flood {
  const char* name;
  Attack attack;
};

// Sends the calls numbered from `first`, in pieces, until the server hangs up.
// `after` follows each call.
void call_on(const RawConnection& connection, int calls, bool ends,
             const std::function<std::string(uint32_t)>& after = {},
             uint32_t first = 1, const std::string& path = http2::kGetStatus) {
  constexpr int kAtOnce = 300;
  uint32_t stream = first;
  for (int sent = 0; sent < calls; sent += kAtOnce) {
    std::string bytes;
    for (int i = sent; i < std::min(calls, sent + kAtOnce); ++i) {
      bytes += http2::call_frame(stream, ends, path);
      if (after) bytes += after(stream);
      stream += 2;
    }
    connection.send_bytes(bytes);
    if (connection.is_closed_by_peer()) return;
  }
}

void acknowledge(const RawConnection& connection,
                 const std::string& settings = http2::settings()) {
  connection.send_bytes(http2::kPreface + settings + http2::settings_ack());
  std::this_thread::sleep_for(milliseconds(5));
}

// Without a token the first call is accepted.
void call_once(const RawConnection& connection) {
  call_on(connection, 1, /*ends=*/false, http2::empty_message);
  std::this_thread::sleep_for(milliseconds(20));
}

// The settings of a client that has no room for answers.
std::string no_room() {
  return http2::frame(4, 0, 0, std::string("\0\x04\0\0\0\0", 6));
}

void leave_calls_open(const RawConnection& connection) {
  acknowledge(connection);
  call_on(connection, kMostCalls, /*ends=*/false);
}

// Each call sends most of a long message and does not end.
void send_incomplete_messages(const RawConnection& connection) {
  acknowledge(connection);
  call_once(connection);
  call_on(
      connection, kMostCalls - 1, /*ends=*/false,
      [](uint32_t stream) {
        const std::string begin("\0\0\x0f\xff\xff", 5);
        return http2::frame(0, 0, stream, begin + std::string(16'000, 'x'));
      },
      /*first=*/3);
}

void send_long_headers(const RawConnection& connection) {
  acknowledge(connection);
  call_once(connection);
  std::string bytes;
  for (uint32_t stream = 3; stream < 2 * kMostCalls; stream += 2) {
    bytes += http2::long_call_frame(stream);
  }
  connection.send_bytes(bytes);
}

// Asks for answers that it never reads.
void send_pings(const RawConnection& connection) {
  acknowledge(connection);
  std::string pings;
  while (pings.size() < size_t{64} << 10) {
    pings += http2::frame(6, 0, 0, std::string(8, 'p'));
  }
  while (!connection.is_closed_by_peer()) {
    const auto begin = SteadyClock::now();
    connection.send_bytes(pings);
    if (SteadyClock::now() - begin > milliseconds(100)) return;
  }
}

// Each call asks for the description of the service, which is long.
void ask_for_reflection(const RawConnection& connection) {
  acknowledge(connection, no_room());
  const std::string symbol = "headroom.wire.Coordinator";
  call_on(
      connection, kMostCalls, /*ends=*/false,
      [&](uint32_t stream) {
        return http2::message_frame(stream, "\x22" + http2::text(symbol),
                                    /*ends=*/false);
      },
      1, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
}

std::vector<Flood> floods_of_calls(bool has_reflection) {
  std::vector<Flood> floods = {
      {"calls, no acknowledged limit",
       [](const RawConnection& connection) {
         connection.send_bytes(http2::kPreface + http2::settings());
         call_on(connection, 35'000, /*ends=*/true);
       }},
      {"calls without a token",
       [](const RawConnection& connection) {
         acknowledge(connection);
         call_on(connection, 35'000, /*ends=*/true);
       }},
      // While the message of a call has not arrived, the server does not refuse
      // the call, so it stays open.
      {"calls that stay open", leave_calls_open},
      {"calls that are taken back",
       [](const RawConnection& connection) {
         acknowledge(connection);
         call_on(connection, 25'000, /*ends=*/false, http2::reset);
       }},
      {"incomplete messages", send_incomplete_messages},
      {"answers that are not taken",
       [](const RawConnection& connection) {
         acknowledge(connection, no_room());
         call_on(connection, kMostCalls, /*ends=*/false, http2::empty_message);
       }},
      {"long headers", send_long_headers},
      {"pings", send_pings},
      {"followers of events",
       [](const RawConnection& connection) {
         acknowledge(connection, no_room());
         call_on(connection, kMostCalls, /*ends=*/false, http2::empty_message,
                 1, "/headroom.wire.Coordinator/StreamEvents");
       }},
      {"connections", [](const RawConnection& connection) {
         connection.send_bytes(http2::kPreface + http2::settings() +
                               http2::settings_ack());
       }}};
  if (has_reflection) {
    floods.push_back({"reflection", ask_for_reflection});
  }
  return floods;
}

// Finishes its side of a TLS handshake, without a certificate, and makes calls.
class WithoutCertificate {
 public:
  void operator()(const RawConnection& connection) const {
    const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(&*context_),
                                                        SSL_free);
    SSL_set_fd(tls.get(), connection.handle());
    const unsigned char protocols[] = "\x02h2";
    SSL_set_alpn_protos(tls.get(), protocols, sizeof(protocols) - 1);
    if (SSL_connect(tls.get()) != 1) return;
    std::string bytes =
        http2::kPreface + http2::settings() + http2::settings_ack();
    for (uint32_t stream = 1; bytes.size() < size_t{16} << 10; stream += 2) {
      bytes += http2::call_frame(stream, /*ends=*/false);
    }
    while (SSL_write(tls.get(), bytes.data(), static_cast<int>(bytes.size())) >
           0) {
    }
  }

 private:
  std::shared_ptr<SSL_CTX> context_{SSL_CTX_new(TLS_client_method()),
                                    SSL_CTX_free};
};

std::vector<Flood> floods_of_handshakes() {
  return {
      {"calls without TLS",
       [](const RawConnection& connection) {
         acknowledge(connection);
         call_on(connection, 35'000, /*ends=*/true);
       }},
      {"unfinished handshakes",
       [](const RawConnection& connection) {
         connection.send_bytes(
             std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) +
             std::string(32, 'r'));
       }},
      {"handshakes, no certificate", WithoutCertificate()},
      {"connections", [](const RawConnection&) {}},
  };
}

// How strangers reach the coordinator.
struct Mode {
  std::string name;
  bool has_tls = false;
  bool has_token = true;
  bool has_reflection = false;
  milliseconds time_of_flood{700};
};

class Floods : public ::testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to closed connections
    folder_ = fresh_folder();
    std::vector<std::string> command = headroom_command(
        // Of a large run, where most strangers are served at one time.
        "coordinator --listen 127.0.0.1:0 --expected-workers 128 --batch 128 "
        "--synthetic-input --cfg yolov5n");
    if (GetParam().has_reflection) command.push_back("--debug-reflection");
    if (GetParam().has_tls) {
      const fs::path certificates = folder_ / "certificates";
      coordinator::make_certificates(certificates, {});
      command.insert(command.end(), {"--certs", certificates.string()});
      ours_ = wire::read_channel_security(certificates, "",
                                          wire::ChannelSide::kClient);
    } else if (GetParam().has_token) {
      const fs::path token = folder_ / "token";
      ours_.token = std::string(64, 't');
      std::ofstream(token) << ours_.token;
      fs::permissions(token, fs::perms::owner_read);
      command.insert(command.end(), {"--token-file", token.string()});
    }
    process_ = std::make_unique<Program>(command, folder_);
    const std::string mark = "listening on ";
    for (int i = 0; i < 3000 && address_.empty(); ++i) {
      std::this_thread::sleep_for(milliseconds(10));
      const std::string words = text_of(folder_ / "stderr.txt");
      const size_t at = words.find(mark);
      const size_t end = words.find('\n', at);
      if (at == std::string::npos || end == std::string::npos) continue;
      address_ = words.substr(at + mark.size(), end - at - mark.size());
    }
    ASSERT_NE(address_, "") << text_of(folder_ / "stderr.txt");
    wire::set_channel_security(ours_);
    member_ = client_of_node("n", address_);
  }
  ~Floods() override { wire::set_channel_security({}); }

  static std::unique_ptr<coordinator::ControlClient> client_of_node(
      const std::string& name, const std::string& address) {
    auto client = coordinator::ControlClient::connect(address);
    coordinator::NodeRegistration node;
    node.node_id = name;
    node.hostname = name;
    node.worker_ids = {name + "-0"};
    client->register_node(node);
    return client;
  }

  // A value of /proc/PID/status in bytes.
  int64_t memory(const std::string& field) const {
    std::ifstream status("/proc/" + std::to_string(process_->pid()) +
                         "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(field + ":")) {
        return std::stoll(line.substr(field.size() + 1)) << 10;
      }
    }
    return -1;
  }

  // Strangers attack for some time, in several threads. Meanwhile the calls of
  // a member are answered.
  void expect_bounded(const Flood& flood) const {
    std::ofstream("/proc/" + std::to_string(process_->pid()) + "/clear_refs")
        << "5";  // resets the peak
    const int64_t before = memory("VmRSS");
    std::atomic<bool> is_over = false;
    std::atomic<int> connections = 0;
    std::vector<std::thread> attackers;
    for (int i = 0; i < 4; ++i) {
      attackers.emplace_back([&] {
        std::deque<RawConnection> held;
        while (!is_over) {
          held.emplace_back(address_).limit_waits(milliseconds(200));
          flood.attack(held.back());
          ++connections;
          if (held.size() > 100) held.pop_front();
        }
      });
    }
    int answered = 0;
    double silence = 0;
    for (const auto end = SteadyClock::now() + GetParam().time_of_flood;
         SteadyClock::now() < end;) {
      std::this_thread::sleep_for(milliseconds(100));
      silence = std::max(silence, member_->node_orders().silence_seconds);
      try {
        member_->status();
        ++answered;
      } catch (const CommunicationError&) {  // too late, on a busy machine
      }
    }
    is_over = true;
    for (std::thread& attacker : attackers) attacker.join();
    constexpr int64_t kMebi = 1 << 20;
    std::printf(
        "%-14s %-29s %4d connections: from %lld to at most %lld MiB; %d calls "
        "of a member answered, silent for %.1f s\n",
        GetParam().name.c_str(), flood.name, connections.load(),
        static_cast<long long>(before / kMebi),
        static_cast<long long>(memory("VmHWM") / kMebi), answered, silence);
    EXPECT_GT(before, 0);
    EXPECT_LT(memory("VmHWM"), kMostResident) << flood.name;
    EXPECT_GT(answered, 0) << flood.name;
  }

  fs::path folder_;
  wire::ChannelSecurity ours_;
  std::unique_ptr<Program> process_;
  std::string address_;
  std::unique_ptr<coordinator::ControlClient> member_;
};

TEST_P(Floods, TakeBoundedMemoryAndASlowClientJoinsAfterwards) {
  for (const Flood& flood : GetParam().has_tls
                                ? floods_of_handshakes()
                                : floods_of_calls(GetParam().has_reflection)) {
    expect_bounded(flood);
  }
  coordinator::CuttableWire slow_link(address_, /*piece=*/64, milliseconds(10));
  const auto joined = client_of_node("late", slow_link.address());
  EXPECT_TRUE(member_->node_orders().lost_worker_ids.empty());
  EXPECT_EQ(joined->status().members.size(), 2u);
}

std::vector<Mode> modes(milliseconds time_of_flood) {
  std::vector<Mode> all = {
      {.name = "Token"},
      {.name = "NoToken", .has_token = false},
      {.name = "Reflection", .has_reflection = true},
      {.name = "NoTokenReflection", .has_token = false, .has_reflection = true},
      {.name = "Tls", .has_tls = true}};
  for (Mode& mode : all) mode.time_of_flood = time_of_flood;
  return all;
}

const auto name_of = [](const auto& mode) { return mode.param.name; };
INSTANTIATE_TEST_SUITE_P(Short, Floods,
                         ::testing::ValuesIn(modes(milliseconds(700))),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Slow, Floods,
                         ::testing::ValuesIn(modes(milliseconds(8000))),
                         name_of);

}  // namespace
}  // namespace headroom::testing
