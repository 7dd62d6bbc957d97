// A real training with certificates and a token. Meanwhile, clients without
// them, stale clients and floods connect to its coordinator: each is refused,
// counted and logged, and the training is undisturbed.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <thread>

#include "coordinator/service/certificates.h"
#include "proto/channel.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/version.h"
#include "tests/coordinator/service/raw_connection.h"
#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr const char* kRun = "runs/train/exp";
constexpr int kIdleConnections = 1000;

bool eventually(double seconds, const std::function<bool()>& holds) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

void allow_many_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// A run with certificates that the test observes from outside.
class HostileRun : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_folder();
    coordinator::make_certificates(folder_ / "ours", {});
    coordinator::make_certificates(folder_ / "foreign", {});
    ours_ = client_of("ours");
  }

  wire::ChannelSecurity client_of(const std::string& name) const {
    return wire::read_channel_security(folder_ / name, "",
                                       wire::ChannelSide::kClient);
  }

  // Loses a worker early, so that there is an old generation to replay.
  std::vector<std::string> command(int steps) const {
    std::vector<std::string> words = train_fp64("8");
    words.insert(words.end(),
                 {"--processes", "2", "--max-steps", std::to_string(steps),
                  "--inject", "kill@rank=1,step=2,phase=vote", "--certs",
                  (folder_ / "ours").string()});
    return words;
  }

  std::vector<Json> steps_of(const fs::path& where) const {
    return read_lines(where / kRun / "steps.jsonl");
  }

  // The address of the coordinator of the run in `where`.
  static std::string address_in(const fs::path& where) {
    const std::string mark = "headroom status --coordinator ";
    std::string address;
    EXPECT_TRUE(eventually(60, [&] {
      std::ifstream file(where / "stderr.txt");
      std::stringstream text;
      text << file.rdbuf();
      const std::string all = text.str();
      const size_t at = all.find(mark);
      const size_t end = all.find('\n', at);
      const size_t blank = all.find(' ', at + mark.size());
      if (at == std::string::npos || end == std::string::npos) return false;
      address =
          all.substr(at + mark.size(), std::min(blank, end) - at - mark.size());
      return true;
    }));
    return address;
  }

  std::unique_ptr<wire::Coordinator::Stub> stub_as(
      const wire::ChannelSecurity& security) const {
    return wire::Coordinator::NewStub(wire::make_channel(address_, security));
  }

  grpc::StatusCode registers_as(const wire::ChannelSecurity& security,
                                size_t bytes = 0) const {
    wire::RegisterRequest request;
    request.set_version(wire::kVersion);
    request.set_node_id("stranger");
    request.set_hostname(std::string(bytes, 'x'));
    wire::RegisterResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(5));
    return stub_as(security)
        ->Register(&context, request, &response)
        .error_code();
  }

  wire::GetStatusResponse status() const {
    wire::GetStatusRequest request;
    wire::GetStatusResponse response;
    grpc::ClientContext context;
    const grpc::Status answer =
        stub_as(ours_)->GetStatus(&context, request, &response);
    EXPECT_TRUE(answer.ok()) << answer.error_message();
    return response;
  }

  // The metric headroom_refused_calls_total{reason="..."}, read as Prometheus
  // does.
  double refused(const std::string& reason) const {
    const coordinator::RawConnection connection("127.0.0.1:" +
                                                std::to_string(metrics_));
    connection.send_bytes(
        "GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    const std::string text = connection.receive_all();
    const std::string series =
        "headroom_refused_calls_total{reason=\"" + reason + "\"} ";
    const size_t at = text.find(series);
    return at == std::string::npos ? 0
                                   : std::stod(text.substr(at + series.size()));
  }

  void expect_refused(const std::string& reason, double at_least) const {
    EXPECT_TRUE(eventually(10, [&] { return refused(reason) >= at_least; }))
        << reason << ": " << refused(reason);
  }

  // --- hostile clients ------------------------------------------------------
  void knock_with_a_wrong_token() const {
    wire::ChannelSecurity wrong = ours_;
    wrong.token = std::string(64, 'a');
    EXPECT_EQ(registers_as(wrong), grpc::StatusCode::UNAUTHENTICATED);
    wrong.token.clear();
    EXPECT_EQ(registers_as(wrong), grpc::StatusCode::UNAUTHENTICATED);
    expect_refused("wrong join token", 2);
  }

  void knock_without_our_certificate() const {
    wire::ChannelSecurity none = ours_;
    none.certificate.clear();
    none.key.clear();
    EXPECT_EQ(registers_as(none), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(registers_as({}), grpc::StatusCode::UNAVAILABLE);
    expect_refused("broken handshake", 2);
    wire::ChannelSecurity forged = client_of("foreign");
    forged.ca = ours_.ca;
    forged.token = ours_.token;
    EXPECT_EQ(registers_as(forged), grpc::StatusCode::UNAVAILABLE);
    expect_refused("broken handshake", 3);
  }

  // Repeats the calls that a member of the previous generation made.
  void replay_the_old_generation() const {
    const wire::GetStatusResponse now = status();
    ASSERT_EQ(now.stamp().generation(), 2u);
    wire::Stamp old;
    old.set_generation(1);
    old.set_run_digest(now.stamp().run_digest());
    std::string worker_id;
    for (const auto& member : now.members()) {
      if (member.rank() == 0) worker_id = member.worker_id();
    }
    const auto stub = stub_as(ours_);
    {
      wire::CommitRequest request;
      *request.mutable_stamp() = old;
      request.set_step(1'000'000);
      wire::CommitResponse response;
      grpc::ClientContext context;
      EXPECT_EQ(stub->Commit(&context, request, &response).error_code(),
                grpc::StatusCode::ABORTED);
    }
    {
      wire::FinishRequest request;
      *request.mutable_stamp() = old;
      request.set_worker_id(worker_id);
      wire::FinishResponse response;
      grpc::ClientContext context;
      EXPECT_EQ(stub->Finish(&context, request, &response).error_code(),
                grpc::StatusCode::ABORTED);
    }
    {
      wire::ReportFailureRequest request;
      *request.mutable_stamp() = old;
      request.set_worker_id(worker_id);
      request.set_exit_code(4);
      wire::ReportFailureResponse response;
      grpc::ClientContext context;
      EXPECT_EQ(stub->ReportFailure(&context, request, &response).error_code(),
                grpc::StatusCode::ABORTED);
    }
    expect_refused("stale", 3);
  }

  void say_too_much() const {
    EXPECT_EQ(registers_as(ours_, size_t{2} << 20),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
    expect_refused("message too long", 1);
    EXPECT_EQ(registers_as(ours_, size_t{64} << 20),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
  }

  void throw_random_bytes() const {
    std::mt19937 random(1);
    for (int i = 0; i < 100; ++i) {
      const coordinator::RawConnection connection(address_);
      ASSERT_TRUE(connection.connected());
      std::string bytes(1 + random() % 4096, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      connection.send_bytes(i % 2 == 0 ? bytes : "\x16\x03\x01" + bytes);
    }
    expect_refused("broken handshake", 100);
  }

  // Connects to all ports on which workers wait for each other's tensors. Half
  // of these clients send nothing, the others send random bytes; none gets a
  // reply.
  void knock_at_tensor_ports(pid_t run) const {
    const std::vector<int> ports = listening_ports(run, "headroom-worker");
    EXPECT_EQ(ports.size(), 2u) << "a port for each rank";
    std::vector<int> strangers;
    for (const int port : ports) {
      for (int i = 0; i < 200; ++i) {
        strangers.push_back(
            ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        sockaddr_in name{};
        name.sin_family = AF_INET;
        name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        name.sin_port = htons(static_cast<uint16_t>(port));
        ::connect(strangers.back(), reinterpret_cast<sockaddr*>(&name),
                  sizeof(name));
        const std::string words(i % 2 == 0 ? 0 : 64, 'x');
        ::send(strangers.back(), words.data(), words.size(), MSG_NOSIGNAL);
      }
    }
    std::vector<pollfd> waiting;
    for (const int stranger : strangers) {
      waiting.push_back({stranger, POLLOUT, 0});
    }
    EXPECT_EQ(::poll(waiting.data(), waiting.size(), 500), 0);
    for (const int stranger : strangers) ::close(stranger);
  }

  // Connections over which nothing is sent.
  std::vector<std::unique_ptr<coordinator::RawConnection>> idle_connections(
      int count) const {
    std::vector<std::unique_ptr<coordinator::RawConnection>> idle;
    for (int i = 0; i < count; ++i) {
      idle.push_back(std::make_unique<coordinator::RawConnection>(address_));
      EXPECT_TRUE(idle.back()->connected()) << i;
    }
    return idle;
  }

  void expect_closed(
      const std::vector<std::unique_ptr<coordinator::RawConnection>>& idle)
      const {
    EXPECT_TRUE(eventually(30, [&] {
      return std::all_of(idle.begin(), idle.end(), [](const auto& connection) {
        return connection->is_closed_by_peer();
      });
    }));
    EXPECT_TRUE(eventually(10, [&] {
      return refused("silent connection") + refused("too many connections") >=
             static_cast<double>(idle.size());
    }));
  }

  void expect_logged(const fs::path& where) const {
    std::string log;
    for (const Json& record :
         read_lines(where / kRun / "logs/coordinator.jsonl")) {
      log += record.at("level").get<std::string>() + " " +
             record.at("message").get<std::string>() + "\n";
    }
    EXPECT_THAT(log, ::testing::HasSubstr(
                         "warning refused a connection: broken handshake"));
    for (const char* words :
         {"wrong join token", "the message has ", "is of generation 1"}) {
      EXPECT_THAT(log,
                  ::testing::ContainsRegex(
                      std::string("warning refused a call of [^\n]*") + words));
    }
  }

  // Lets all hostile clients act during a run of `num_steps` steps, together
  // with `idle` idle connections.
  void expect_undisturbed(int num_steps, int idle) {
    const fs::path calm = folder_ / "calm";
    const fs::path disturbed = folder_ / "disturbed";
    fs::create_directories(disturbed);
    const std::vector<Json> expected = train_in(calm, command(num_steps), {});

    std::vector<std::string> words = command(num_steps);
    metrics_ = free_port();
    words.insert(words.end(),
                 {"--metrics", "127.0.0.1:" + std::to_string(metrics_)});
    Program run(words, disturbed);
    address_ = address_in(disturbed);
    ASSERT_TRUE(eventually(60, [&] {
      const auto steps = steps_of(disturbed);
      return !steps.empty() && steps.back().at("generation") == 2;
    }));
    const size_t before = steps_of(disturbed).size();
    const auto silent = idle_connections(idle);
    knock_at_tensor_ports(run.pid());
    knock_with_a_wrong_token();
    knock_without_our_certificate();
    replay_the_old_generation();
    say_too_much();
    throw_random_bytes();
    if (idle > 0) expect_closed(silent);
    const size_t after = steps_of(disturbed).size();
    std::printf("knocked at from step %zu to step %zu\n", before, after);
    EXPECT_GT(after, before);
    EXPECT_LT(after, static_cast<size_t>(num_steps)) << "it was over by then";

    const ProgramResult result = run.join();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::vector<Json> steps = steps_of(disturbed);
    ASSERT_EQ(steps.size(), expected.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].at("loss"), expected[i].at("loss")) << i;
      EXPECT_EQ(steps[i].at("grad_norm"), expected[i].at("grad_norm")) << i;
      EXPECT_EQ(steps[i].at("samples"), expected[i].at("samples")) << i;
    }
    EXPECT_EQ(steps.back().at("generation"), 2);
    expect_logged(disturbed);
  }

  fs::path folder_;
  wire::ChannelSecurity ours_;
  std::string address_;
  int metrics_ = 0;
};

TEST_F(HostileRun, StrangersAreRefusedAndTrainingIsUndisturbed) {
  expect_undisturbed(/*num_steps=*/60, /*idle=*/0);
}

class Slow : public HostileRun {};

// The coordinator closes idle connections after 5 s, and must report them
// during the run.
TEST_F(Slow, AThousandIdleStrangersChangeNothing) {
  allow_many_files();
  expect_undisturbed(/*num_steps=*/150, kIdleConnections);
}

}  // namespace
}  // namespace headroom::testing
