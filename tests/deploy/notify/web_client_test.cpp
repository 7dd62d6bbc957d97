#include "deploy/notify/web_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "coordinator/service/certificates.h"
#include "tests/support/temporary_folder.h"

namespace headroom::notify {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

// A server whose certificate authority is not installed on the machine.
class EncryptedServer : public ::testing::Test {
 protected:
  EncryptedServer() {
    coordinator::make_certificates(certificates_, {"ml.example"});
    server_ = std::make_unique<httplib::SSLServer>(
        (certificates_ / "server.pem").c_str(),
        (certificates_ / "server.key").c_str());
    server_->Post(
        "/", [](const httplib::Request& request, httplib::Response& response) {
          response.set_content(request.body, "text/plain");
        });
    port_ = server_->bind_to_any_port("0.0.0.0");
    thread_ = std::thread([this] { server_->listen_after_bind(); });
    while (!server_->is_running()) std::this_thread::yield();
  }
  ~EncryptedServer() override {
    unsetenv("SSL_CERT_FILE");
    server_->stop();
    thread_.join();
  }
  WebAnswer answer_of(const std::string& host) const {
    WebClient client(
        {.is_encrypted = true, .host = host, .port = port_, .path = ""});
    return client.send({.path = "/", .body = "hello"}, seconds(5));
  }
  int port() const { return port_; }
  void trust_its_authority() const {
    setenv("SSL_CERT_FILE", (certificates_ / "ca.pem").c_str(), 1);
  }

 private:
  testing::TemporaryFolder folder_;
  const std::filesystem::path certificates_ = folder_.path() / "certs";
  std::unique_ptr<httplib::SSLServer> server_;
  int port_ = 0;
  std::thread thread_;
};

TEST_F(EncryptedServer, OfAnUnknownAuthorityIsRefused) {
  const WebAnswer answer = answer_of("127.0.0.1");
  EXPECT_EQ(answer.status, 0);
  EXPECT_THAT(answer.fault, HasSubstr("certificate is not valid"));
}

TEST_F(EncryptedServer, OfAKnownAuthorityIsAccepted) {
  trust_its_authority();
  const WebAnswer answer = answer_of("127.0.0.1");
  EXPECT_EQ(answer.status, 200) << answer.fault;
  EXPECT_EQ(answer.body, "hello");
}

TEST_F(EncryptedServer, UnderAnotherNameIsRefused) {
  trust_its_authority();
  EXPECT_THAT(answer_of("127.0.0.2").fault,
              HasSubstr("certificate is not valid"));
}

TEST_F(EncryptedServer, RequestsSlashWhereTheAddressHasNoPath) {
  trust_its_authority();
  for (const char* path : {"", "/", "?x=1"}) {
    WebClient client({.is_encrypted = true,
                      .host = "127.0.0.1",
                      .port = port(),
                      .path = path});
    const WebAnswer answer =
        client.send({.path = "", .body = "hello"}, seconds(5));
    EXPECT_EQ(answer.body, "hello") << path << ": " << answer.fault;
  }
}

TEST(WebClient, AfterACutItSendsNothingUntilItGoesOn) {
  WebClient client(
      {.is_encrypted = false, .host = "127.0.0.1", .port = 1, .path = ""});
  client.cut();
  EXPECT_EQ(client.send({.path = "/"}, seconds(5)).fault,
            "the request was ended");
  client.go_on();
  EXPECT_EQ(client.send({.path = "/"}, seconds(5)).fault, "no connection");
}

TEST(WebClient, ClosedPortAndUnknownName) {
  WebClient nobody(
      {.is_encrypted = false, .host = "127.0.0.1", .port = 1, .path = ""});
  EXPECT_EQ(nobody.send({.path = "/"}, seconds(5)).fault, "no connection");
  nobody.stop();
  EXPECT_EQ(nobody.send({.path = "/"}, seconds(5)).fault,
            "the request was ended");
  WebClient unnamed({.is_encrypted = true,
                     .host = "no-such-name.invalid",
                     .port = 443,
                     .path = ""});
  EXPECT_EQ(unnamed.send({.path = "/"}, seconds(5)).status, 0);
}

}  // namespace
}  // namespace headroom::notify
