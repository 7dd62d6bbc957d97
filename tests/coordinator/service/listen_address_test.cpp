#include "coordinator/service/listen_address.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include "parallel/base/check.h"

namespace headroom::coordinator {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ListenAddress, HostAndPortAreReadBackUnchanged) {
  for (const char* text : {"127.0.0.1:0", "localhost:65535", "[::1]:29400",
                           "0.0.0.0:80", "node-3.cluster:1"}) {
    EXPECT_EQ(parse_listen_address(text).to_string(), text);
  }
  EXPECT_EQ(parse_listen_address("[::1]:29400").host, "::1");
  EXPECT_EQ(parse_listen_address("[::1]:29400").port, 29400);
}

TEST(ListenAddress, AnInvalidAddressIsRefusedWithTheReason) {
  const auto refuses = [](const std::string& text, const std::string& why) {
    EXPECT_THAT([&] { parse_listen_address(text); },
                ThrowsMessage<Error>(HasSubstr("'" + text + "' " + why)));
  };
  refuses("", "has no port");
  refuses("localhost", "has no port");
  refuses(":80", "has no host");
  refuses("localhost:", "has no port from 0 to 65535");
  refuses("localhost:http", "has no port from 0 to 65535");
  refuses("localhost:80x", "has no port from 0 to 65535");
  refuses("localhost:65536", "has no port from 0 to 65535");
  refuses("localhost:-1", "has no port from 0 to 65535");
  refuses("localhost:99999999999999", "has no port from 0 to 65535");
  refuses("::1:80", "has an IPv6 host without brackets");
}

TEST(ListenAddress, TheSystemsReasonForAnUnavailablePortIsGiven) {
  const int handle = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(handle, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(listen(handle, 1), 0);
  socklen_t length = sizeof(name);
  ASSERT_EQ(getsockname(handle, reinterpret_cast<sockaddr*>(&name), &length),
            0);
  ListenAddress address;
  address.host = "127.0.0.1";
  address.port = ntohs(name.sin_port);
  EXPECT_EQ(binding_error(address), "Address already in use");
  close(handle);
  EXPECT_EQ(binding_error(address), "");
}

TEST(ListenAddress, AnAddressOfAnotherMachineCannotBeBound) {
  ListenAddress address;
  address.host = "192.0.2.1";  // an address reserved for documentation
  EXPECT_EQ(binding_error(address), "Cannot assign requested address");
}

}  // namespace
}  // namespace headroom::coordinator
