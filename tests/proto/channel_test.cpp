#include "proto/channel.h"

#include <gmock/gmock.h>

#include "parallel/base/check.h"

namespace headroom::wire {
namespace {

using grpc::Status;
using grpc::StatusCode;
using testing::HasSubstr;
using testing::ThrowsMessage;

int exit_code_of(const Status& status) {
  try {
    throw_failure(status, "asking");
  } catch (const Error& error) {
    return static_cast<int>(error.exit_code());
  }
}

TEST(Channel, AnUnreachableServerIsACommunicationError) {
  for (const StatusCode code :
       {StatusCode::UNAVAILABLE, StatusCode::DEADLINE_EXCEEDED,
        StatusCode::CANCELLED}) {
    EXPECT_TRUE(is_unreachable(Status(code, "")));
    EXPECT_THAT([&] { throw_failure(Status(code, "refused"), "asking A:1"); },
                ThrowsMessage<CommunicationError>(
                    HasSubstr("asking A:1: no answer (refused)")));
  }
}

// gRPC resets streams with HTTP/2's ENHANCE_YOUR_CALM if it is short of memory;
// such a call may be repeated. If the coordinator itself refuses a message that
// is too long, this is still a refusal.
TEST(Channel, ACallToAServerShortOfMemoryMayBeRepeated) {
  EXPECT_TRUE(is_unreachable(Status(StatusCode::RESOURCE_EXHAUSTED,
                                    "Received RST_STREAM with error code 11")));
  EXPECT_FALSE(is_unreachable(
      Status(StatusCode::RESOURCE_EXHAUSTED, "the message has 2 bytes")));
}

TEST(Channel, ARefusalKeepsTheCoordinatorsText) {
  const Status status(StatusCode::FAILED_PRECONDITION, "coordinator is 2");
  EXPECT_FALSE(is_unreachable(status));
  EXPECT_THAT([&] { throw_failure(status, "joining"); },
              ThrowsMessage<Error>("[coordinator] joining: coordinator is 2"));
}

TEST(Channel, ARefusedRequestExitsWith2AndEverythingElseWith5) {
  EXPECT_EQ(exit_code_of(Status(StatusCode::FAILED_PRECONDITION, "")), 2);
  EXPECT_EQ(exit_code_of(Status(StatusCode::INVALID_ARGUMENT, "")), 2);
  EXPECT_EQ(exit_code_of(Status(StatusCode::ABORTED, "")), 5);
  EXPECT_EQ(exit_code_of(Status(StatusCode::INTERNAL, "")), 5);
  EXPECT_EQ(exit_code_of(Status(StatusCode::UNAVAILABLE, "")), 5);
}

}  // namespace
}  // namespace headroom::wire
