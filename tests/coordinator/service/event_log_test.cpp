#include "coordinator/service/event_log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headroom::coordinator {
namespace {

wire::EventRecord record(const std::string& reason) {
  return {.event = EventKind::kData, .reason = reason};
}

TEST(EventLog, NumbersFromOneAndStampsTheTime) {
  EventLog log;
  EXPECT_EQ(log.append(record("a"), "then").sequence, 1);
  EXPECT_EQ(log.append(record("b"), "now").sequence, 2);
  EXPECT_EQ(log.next_after(0)->reason, "a");
  EXPECT_EQ(log.next_after(1)->reason, "b");
  EXPECT_EQ(log.next_after(1)->time, "now");
  EXPECT_EQ(log.next_after(2), nullptr);
  EXPECT_EQ(log.next_after(99), nullptr);
  EXPECT_EQ(EventLog().next_after(0), nullptr);
}

TEST(EventLog, TheOldestAreDroppedAndASlowReaderSkipsThem) {
  EventLog log;
  for (int i = 0; i < 1500; ++i) log.append(record(std::to_string(i)), "");
  EXPECT_EQ(log.next_after(0)->sequence, 501);
  EXPECT_EQ(log.next_after(0)->reason, "500");
  EXPECT_EQ(log.next_after(1499)->sequence, 1500);
  const std::vector<wire::EventRecord> newest = log.newest(2);
  ASSERT_EQ(newest.size(), 2u);
  EXPECT_EQ(newest[0].reason, "1498");
  EXPECT_EQ(log.newest(5000).size(), EventLog::kMaxEvents);
}

TEST(EventLog, HugeEventsAreDroppedByBytes) {
  EventLog log;
  for (int i = 0; i < 40; ++i) {
    log.append(record(std::string(1 << 20, 'x')), "");
  }
  EXPECT_EQ(log.newest(100).size(), 15u);
  // An event that is larger than the limit can still be read.
  log.append(record("larger" + std::string(EventLog::kMaxBytes, 'x')), "");
  ASSERT_EQ(log.newest(100).size(), 1u);
  EXPECT_TRUE(log.newest(1)[0].reason.starts_with("larger"));
}

}  // namespace
}  // namespace headroom::coordinator
