#include "parallel/collectives/shared_segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "parallel/base/check.h"

namespace headroom::collectives {
namespace {

using testing::HasSubstr;

std::string refusal_of(const SegmentAddress& address, size_t bytes) {
  try {
    SharedSegment::open(address, bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.tag(), "shared_memory");
    return error.text();
  }
  return "opened";
}

TEST(SharedSegment, StartsAsZerosAndIsVisibleToProcessesThatOpenIt) {
  const SharedSegment own = SharedSegment::create(10000);
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(own.data()[i], std::byte{0});
  const SharedSegment opened = SharedSegment::open(own.address(), 10000);
  EXPECT_NE(opened.data(), own.data());
  own.data()[9999] = std::byte{7};
  EXPECT_EQ(opened.data()[9999], std::byte{7});
  opened.data()[0] = std::byte{8};
  EXPECT_EQ(own.data()[0], std::byte{8});
}

TEST(SharedSegment, OutlivesItsOwnerWhereItIsOpen) {
  SharedSegment own = SharedSegment::create(100);
  own.data()[5] = std::byte{3};
  const SharedSegment opened = SharedSegment::open(own.address(), 100);
  { const SharedSegment gone = std::move(own); }
  EXPECT_EQ(opened.data()[5], std::byte{3});
}

TEST(SharedSegment, AnotherSegmentUnderTheSameNumberIsRefused) {
  const SharedSegment own = SharedSegment::create(100);
  SegmentAddress forged = own.address();
  forged.token[1] ^= 1;
  EXPECT_THAT(refusal_of(forged, 100), HasSubstr("another segment"));
  EXPECT_THAT(refusal_of(own.address(), 200), HasSubstr("200 bytes"));
  EXPECT_EQ(refusal_of(own.address(), 100), "opened");
}

TEST(SharedSegment, ASegmentThatIsGoneIsRefused) {
  SegmentAddress address;
  {
    const SharedSegment own = SharedSegment::create(100);
    address = own.address();
  }
  EXPECT_THAT(refusal_of(address, 100), HasSubstr("/proc/"));
  address.process = 0;
  EXPECT_THAT(refusal_of(address, 100), HasSubstr("cannot open /proc/0/"));
}

}  // namespace
}  // namespace headroom::collectives
