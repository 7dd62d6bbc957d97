// Authentication: clients without the certificates or the token cannot disturb
// a run that requires both.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/resource.h>

#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>

#include "coordinator/service/certificates.h"
#include "coordinator/service/server.h"
#include "parallel/base/check.h"
#include "proto/channel.h"
#include "proto/connection_fault.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/version.h"
#include "tests/coordinator/service/local_run.h"
#include "tests/coordinator/service/raw_connection.h"

namespace headroom::coordinator {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

fs::path fresh_certificates(const std::string& name) {
  const fs::path folder =
      fs::path(HEADROOM_BUILD_DIR) / "tests/secure_network" / name;
  fs::remove_all(folder);
  make_certificates(folder, {});
  return folder;
}

// Replaces the certificate server.pem or client.pem in `folder` by one that
// expired yesterday.
void let_expire(const fs::path& folder, const std::string& name) {
  constexpr long kDay = 24 * 60 * 60;
  const auto reading = [&](const char* name) {
    return std::unique_ptr<BIO, decltype(&BIO_free)>(
        BIO_new_file((folder / name).c_str(), "r"), BIO_free);
  };
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(
      PEM_read_bio_X509(reading(name.c_str()).get(), nullptr, nullptr, nullptr),
      X509_free);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(reading("ca.key").get(), nullptr, nullptr,
                              nullptr),
      EVP_PKEY_free);
  ASSERT_TRUE(certificate && key);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -2 * kDay);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), -kDay);
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  const std::unique_ptr<BIO, decltype(&BIO_free)> writing(
      BIO_new_file((folder / name).c_str(), "w"), BIO_free);
  ASSERT_EQ(PEM_write_bio_X509(writing.get(), certificate.get()), 1);
}

// A coordinator with certificates, an agent and a worker that trains.
class SecureNetwork : public ::testing::Test {
 protected:
  ~SecureNetwork() override { wire::set_channel_security({}); }

  void SetUp() override {
    ours_ = fresh_certificates("ours");
    security_ = client_of(ours_);
    wire::set_channel_security(security_);
    ServerOptions options = LocalRun::options(1, "/runs/exp");
    options.security =
        wire::read_channel_security(ours_, "", wire::ChannelSide::kServer);
    server_ = Server::start(options);
    agent_ = ControlClient::connect(server_->address());
    NodeRegistration node;
    node.node_id = "n";
    node.hostname = "h";
    node.worker_ids = {"w0"};
    agent_->register_node(node);
    worker_ = control::CoordinatorClient::connect(
        server_->address(), {"n", "w0", agent_->secret_of("w0")}, "127.0.0.1");
    assignment_ = worker_->next_assignment();
    ASSERT_EQ(assignment_.action, control::Action::kRun);
  }

  // At the end of each test, the training that ran meanwhile still ends
  // normally.
  void TearDown() override {
    ASSERT_NE(worker_, nullptr);
    wire::RunProgress progress;
    progress.step = ++step_;
    worker_->commit(step_, 0.5, progress);
    EXPECT_TRUE(
        eventually([&] { return server_->status().progress.step == step_; }));
    EXPECT_EQ(server_->status().state, RunPhase::kRunning);
    EXPECT_EQ(server_->status().generation, 1u);
    worker_->finish(
        {.exit_code = 0, .reason = "done", .result_json = "{}", .step = step_});
    EXPECT_EQ(worker_->next_assignment().action, control::Action::kExit);
  }

  static wire::ChannelSecurity client_of(const fs::path& folder) {
    return wire::read_channel_security(folder, "", wire::ChannelSide::kClient);
  }

  // The status of a registration with `security`.
  grpc::Status registers_as(const wire::ChannelSecurity& security) const {
    const auto stub = wire::Coordinator::NewStub(
        wire::make_channel(server_->address(), security));
    wire::RegisterRequest request;
    request.set_version(wire::kVersion);
    request.set_node_id("stranger");
    wire::RegisterResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(5));
    return stub->Register(&context, request, &response);
  }

  int64_t refused(const std::string& reason) const {
    const auto all = server_->refused_calls();
    const auto found = all.find(reason);
    return found == all.end() ? 0 : found->second;
  }

  fs::path ours_;
  wire::ChannelSecurity security_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<ControlClient> agent_;
  std::unique_ptr<control::CoordinatorClient> worker_;
  control::Assignment assignment_;
  int64_t step_ = 0;
};

TEST_F(SecureNetwork, AWrongTokenIsRefused) {
  wire::ChannelSecurity wrong = security_;
  wrong.token = std::string(64, 'a');
  EXPECT_EQ(registers_as(wrong).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  wrong.token.clear();
  const grpc::Status status = registers_as(wrong);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(status.error_message(), "wrong join token");
  EXPECT_EQ(server_->refused_calls().at("wrong join token"), 2);
}

// The guesses come from the address of an agent; afterwards the agent can still
// register a successor.
TEST_F(SecureNetwork, GuessesOfTheTokenLoseNoMember) {
  wire::ChannelSecurity wrong = security_;
  wrong.token = std::string(64, 'a');
  const auto stub =
      wire::Coordinator::NewStub(wire::make_channel(server_->address(), wrong));
  wire::RegisterRequest request;
  wire::RegisterResponse response;
  for (int i = 0; i < 3000; ++i) {
    grpc::ClientContext context;
    ASSERT_EQ(stub->Register(&context, request, &response).error_code(),
              grpc::StatusCode::UNAUTHENTICATED)
        << i;
  }
  NodeRegistration node;
  node.node_id = "n";
  node.hostname = "h";
  node.worker_ids = {"w0"};
  EXPECT_NO_THROW(agent_->register_successors(node));
}

TEST_F(SecureNetwork, AClientWithoutACertificateIsRefused) {
  wire::ChannelSecurity none = security_;
  none.certificate.clear();
  none.key.clear();
  EXPECT_EQ(registers_as(none).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(registers_as({}).error_code(), grpc::StatusCode::UNAVAILABLE);
  // gRPC's client tries to connect more than once.
  EXPECT_TRUE(eventually([&] { return refused("broken handshake") >= 2; }));
}

TEST_F(SecureNetwork, AForeignCaIsTrustedByNeitherSide) {
  const wire::ChannelSecurity foreign =
      client_of(fresh_certificates("foreign"));
  wire::ChannelSecurity forged = foreign;  // foreign keys, but our CA and token
  forged.ca = security_.ca;
  forged.token = security_.token;
  EXPECT_EQ(registers_as(forged).error_code(), grpc::StatusCode::UNAVAILABLE);
  wire::ChannelSecurity deceived = security_;
  deceived.ca = foreign.ca;
  EXPECT_TRUE(eventually([&] { return refused("broken handshake") >= 1; }));
  EXPECT_EQ(registers_as(deceived).error_code(), grpc::StatusCode::UNAVAILABLE);
}

// gRPC itself reports all of these as an unavailable server.
TEST_F(SecureNetwork, AFailedConnectionIsReportedWithItsCause) {
  const auto fault = [&](const wire::ChannelSecurity& security) {
    const auto found = wire::connection_fault(server_->address(), security);
    return found ? found->what : "";
  };
  const std::string whom = "the coordinator at " + server_->address();
  EXPECT_EQ(fault(security_), "");
  wire::ChannelSecurity other = client_of(fresh_certificates("other"));
  EXPECT_THAT(fault(other),
              HasSubstr(whom + " shows a certificate that is not accepted "
                               "here: "));
  other.ca = security_.ca;
  EXPECT_THAT(fault(other),
              HasSubstr(whom + " refuses the certificate of this side: "));
  EXPECT_THAT(fault({}), HasSubstr(whom + " hangs up on connections without"));
  const auto plain = Server::start(LocalRun::options(1, "/runs/plain"));
  const auto found = wire::connection_fault(plain->address(), security_);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->what, HasSubstr(" speaks no TLS"));
  wire::set_channel_security(client_of(ours_.parent_path() / "other"));
  const auto begin = std::chrono::steady_clock::now();
  try {
    ControlClient::connect(server_->address())->register_node({});
    ADD_FAILURE() << "a foreign coordinator is believed";
  } catch (const CommunicationError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is not accepted here"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10))
      << "it will not be accepted later";
  wire::set_channel_security(security_);
}

TEST_F(SecureNetwork, AnExpiredCertificateIsCalledExpired) {
  const fs::path old = fresh_certificates("old");
  let_expire(old, "server.pem");
  ServerOptions options = LocalRun::options(1, "/runs/old");
  options.security =
      wire::read_channel_security(old, "", wire::ChannelSide::kServer);
  const auto server = Server::start(options);
  const auto fault = wire::connection_fault(server->address(), client_of(old));
  ASSERT_TRUE(fault);
  EXPECT_THAT(fault->what, HasSubstr("certificate has expired"));
}

TEST_F(SecureNetwork, AnOversizedMessageIsRefused) {
  const auto stub = wire::Coordinator::NewStub(
      wire::make_channel(server_->address(), security_));
  for (const size_t bytes : {size_t{2} << 20, size_t{64} << 20}) {
    wire::RegisterRequest request;
    request.set_version(wire::kVersion);
    request.set_hostname(std::string(bytes, 'x'));
    wire::RegisterResponse response;
    grpc::ClientContext context;
    EXPECT_EQ(stub->Register(&context, request, &response).error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED)
        << bytes;
  }
  // gRPC drops bytes beyond its own limit, 4 MiB, before the service sees them.
  EXPECT_EQ(refused("message too long"), 1);
}

TEST_F(SecureNetwork, AThousandIdleConnectionsAreClosed) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  constexpr int kConnections = 1000;
  if (limit.rlim_cur < 2 * kConnections + 200) {
    GTEST_SKIP() << "this process may open " << limit.rlim_cur << " files";
  }
  std::vector<std::unique_ptr<RawConnection>> idle;
  for (int i = 0; i < kConnections; ++i) {
    idle.push_back(std::make_unique<RawConnection>(server_->address()));
    ASSERT_TRUE(idle.back()->connected());
  }
  EXPECT_TRUE(eventually([&] {
    return registers_as(security_).error_code() !=
           grpc::StatusCode::UNAVAILABLE;
  })) << "others are still answered";
  // gRPC gives each connection 5 s for its handshake.
  const auto all_closed = [&] {
    for (const auto& connection : idle) {
      if (!connection->is_closed_by_peer()) return false;
    }
    return true;
  };
  bool closed = false;
  for (int i = 0; i < 6 && !closed; ++i) closed = eventually(all_closed);
  EXPECT_TRUE(closed);
  EXPECT_TRUE(eventually([&] {
    return refused("silent connection") + refused("too many connections") >=
           kConnections;
  }));
}

TEST(OpenNetwork, OnlyThisMachineIsLoopback) {
  for (const char* host : {"localhost", "127.0.0.1", "127.8.9.10", "::1"}) {
    EXPECT_TRUE(wire::is_loopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "node",
                           "127.0.0.1.example.org", ""}) {
    EXPECT_FALSE(wire::is_loopback(host)) << host;
  }
}

TEST(OpenNetwork, BeyondLoopbackTlsAndATokenAreNeededOrAFlag) {
  wire::ChannelSecurity security;
  const auto refusal = [&](const std::string& address) -> std::string {
    try {
      wire::require_protected(address, security, false);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("127.0.0.1:29500"), "");
  EXPECT_EQ(refusal("[::1]:29500"), "");
  EXPECT_THAT(refusal("10.0.0.5:29500"),
              HasSubstr("[network] 10.0.0.5:29500 is beyond loopback, where "
                        "control traffic must have TLS and a join token, and "
                        "there is neither: give --certs DIR"));
  EXPECT_NO_THROW(wire::require_protected("node:1", security, true));
  security.token = std::string(64, 'a');
  EXPECT_THAT(refusal("10.0.0.5:29500"), HasSubstr("no certificates"));
  security = read_channel_security(fresh_certificates("rule"), "",
                                   wire::ChannelSide::kClient);
  EXPECT_EQ(refusal("10.0.0.5:29500"), "");
  security.token.clear();
  EXPECT_THAT(refusal("10.0.0.5:29500"),
              HasSubstr("there is no token: put one into the folder of --certs "
                        "as 'token', or give --token-file FILE"));
}

TEST(OpenNetwork, BeyondLoopbackCertificatesAndATokenAreEnough) {
  const fs::path folder = fresh_certificates("beyond");
  ServerOptions options = LocalRun::options(1, "/runs/exp");
  options.listen = "0.0.0.0:0";
  EXPECT_THROW(Server::start(options), Error);
  options.security =
      wire::read_channel_security(folder, "", wire::ChannelSide::kServer);
  EXPECT_NE(Server::start(options), nullptr);
}

TEST_F(SecureNetwork, AnOwnCertificateThatHasExpiredIsNamedSo) {
  const fs::path old = fresh_certificates("own_expired");
  for (const char* file : {"ca.pem", "ca.key", "client.pem", "client.key"}) {
    fs::copy_file(ours_ / file, old / file,
                  fs::copy_options::overwrite_existing);
  }
  let_expire(old, "client.pem");
  const auto fault = wire::connection_fault(server_->address(), client_of(old));
  ASSERT_TRUE(fault);
  EXPECT_THAT(fault->what,
              HasSubstr("refuses the certificate of this side, which has "
                        "expired on "));
}

int64_t kib_of(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) {
      return std::stoll(line.substr(field.size() + 1));
    }
  }
  return -1;
}

// Two floods: unfinished handshakes, and frames that request replies which the
// client never reads. The coordinator runs in this process, so its memory can
// be measured.
TEST_F(SecureNetwork, FloodsTakeLittleMemory) {
  const std::string hello =
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) +
      std::string(32, 'r');
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  const int64_t before = kib_of("VmRSS");
  ASSERT_GT(before, 0);
  std::deque<RawConnection> held;
  for (int i = 0; i < 3000; ++i) {
    held.emplace_back(server_->address()).send_bytes(hello);
    if (held.size() > 300) held.pop_front();
  }
  std::string frames;
  while (frames.size() < size_t{64} << 10) {
    frames += std::string("\0\0\0\4\0\0\0\0\0", 9);
  }
  for (int i = 0; i < 64; ++i) {
    held.emplace_back(server_->address()).send_bytes(frames);
  }
  const int64_t growth = kib_of("VmHWM") - before;
  EXPECT_LT(growth, 128 << 10) << "KiB";
  std::printf("%lld KiB more at most\n", static_cast<long long>(growth));
}

}  // namespace
}  // namespace headroom::coordinator
