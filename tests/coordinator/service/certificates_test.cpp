#include "coordinator/service/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>

#include "parallel/base/check.h"
#include "proto/channel_security.h"

namespace headroom::coordinator {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

fs::path fresh_folder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const fs::path folder =
      fs::path(HEADROOM_BUILD_DIR) / "tests/certificates" / test->name();
  fs::remove_all(folder);
  return folder;
}

// The output of the openssl program; "" if it is not installed.
std::string said_by(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  char buffer[4096];
  for (size_t count; (count = fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    text.append(buffer, count);
  }
  pclose(pipe);
  return text;
}

TEST(Certificates, AreForTheNamesAndSignedByTheirCa) {
  const fs::path folder = fresh_folder();
  make_certificates(folder, {"node-1", "10.0.0.5", "fe80::1", "localhost"});
  if (said_by("command -v openssl").empty()) {
    GTEST_SKIP() << "there is no openssl program here";
  }
  for (const std::string side : {"server", "client"}) {
    // A machine whose clock is six days behind accepts the certificates too.
    for (const std::int64_t behind : {0, 6 * 24 * 3600}) {
      EXPECT_THAT(said_by("openssl verify -x509_strict -attime " +
                          std::to_string(std::time(nullptr) - behind) +
                          " -CAfile " + (folder / "ca.pem").string() + " " +
                          (folder / (side + ".pem")).string()),
                  HasSubstr(": OK"));
    }
  }
  const std::string text = said_by("openssl x509 -noout -text -in " +
                                   (folder / "server.pem").string());
  EXPECT_THAT(text, HasSubstr("DNS:node-1, IP Address:10.0.0.5, "
                              "IP Address:FE80:0:0:0:0:0:0:1, DNS:localhost, "
                              "IP Address:127.0.0.1"));
  EXPECT_THAT(text, HasSubstr("TLS Web Server Authentication"));
}

TEST(Certificates, SecretsAreForTheirOwnerAlone) {
  const fs::path folder = fresh_folder();
  make_certificates(folder, {});
  for (const char* name : {"ca.key", "server.key", "client.key", "token"}) {
    EXPECT_EQ(fs::status(folder / name).permissions() & fs::perms::mask,
              fs::perms::owner_read | fs::perms::owner_write)
        << name;
  }
}

TEST(Certificates, AreNeverWrittenOverOthers) {
  const fs::path folder = fresh_folder();
  make_certificates(folder, {});
  EXPECT_THROW(make_certificates(folder, {}), Error);
}

TEST(Certificates, AnInvalidNameIsRefused) {
  for (const std::string name :
       {"", "a b", "node,DNS:other", "10.0.0.5/8", "node:1"}) {
    EXPECT_THROW(make_certificates(fresh_folder(), {name}), Error) << name;
    EXPECT_FALSE(fs::exists(fresh_folder()));
  }
}

TEST(ChannelSecurity, ReadsEitherSideAndTheTokenOfTheFolder) {
  const fs::path folder = fresh_folder();
  make_certificates(folder, {});
  const wire::ChannelSecurity server =
      wire::read_channel_security(folder, "", wire::ChannelSide::kServer);
  const wire::ChannelSecurity client =
      wire::read_channel_security(folder, "", wire::ChannelSide::kClient);
  EXPECT_TRUE(server.is_encrypted());
  EXPECT_EQ(server.ca, client.ca);
  EXPECT_NE(server.certificate, client.certificate);
  EXPECT_EQ(server.token, client.token);
  EXPECT_EQ(server.token.size(), 64u);
  EXPECT_FALSE(wire::read_channel_security("", "", wire::ChannelSide::kClient)
                   .is_encrypted());
}

TEST(ChannelSecurity, AKeyThatOthersCanReadIsRefused) {
  const fs::path folder = fresh_folder();
  make_certificates(folder, {});
  fs::permissions(folder / "client.key", fs::perms::others_read,
                  fs::perm_options::add);
  try {
    wire::read_channel_security(folder, "", wire::ChannelSide::kClient);
    FAIL() << "it was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("client.key can be read by others"));
  }
}

TEST(ChannelSecurity, AMissingFileAndAShortTokenAreNamed) {
  const fs::path folder = fresh_folder();
  EXPECT_THROW(
      wire::read_channel_security(folder, "", wire::ChannelSide::kClient),
      Error);
  fs::create_directories(folder);
  std::ofstream(folder / "short") << "secret\n";
  fs::permissions(folder / "short", fs::perms::owner_read);
  try {
    wire::read_channel_security("", folder / "short",
                                wire::ChannelSide::kClient);
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds no token"));
  }
}

TEST(Certificates, BelongToTheirOwnerUnderAnyUmask) {
  const fs::path folder =
      fs::path(HEADROOM_BUILD_DIR) / "tests/certificates/umask";
  fs::remove_all(folder);
  const mode_t before = ::umask(0);
  make_certificates(folder / "new", {});
  fs::create_directories(folder / "open");
  EXPECT_THROW(make_certificates(folder / "open", {}), Error);
  ::umask(before);
  const auto mode = [&](const char* name) {
    return static_cast<unsigned>(
        fs::status(folder / "new" / name).permissions());
  };
  EXPECT_EQ(mode(""), 0700u);
  EXPECT_EQ(mode("ca.key"), 0600u);
  EXPECT_EQ(mode("token"), 0600u);
  EXPECT_EQ(mode("server.pem"), 0644u);
}

}  // namespace
}  // namespace headroom::coordinator
