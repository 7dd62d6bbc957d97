#include "parallel/base/event_kinds.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace headroom {
namespace {

TEST(EventKinds, EachKindHasItsOwnNameAndIsParsedFromIt) {
  std::set<std::string> names;
  int position = 0;
  for (const EventDescription& event : event_descriptions()) {
    EXPECT_EQ(static_cast<int>(event.kind), position++) << event.name;
    EXPECT_TRUE(names.insert(event.name).second) << event.name;
    EXPECT_EQ(to_string(event.kind), event.name);
    EXPECT_EQ(parse_event_kind(event.name), event.kind);
  }
  EXPECT_EQ(position, static_cast<int>(EventKind::kSlowRank) + 1);
  EXPECT_EQ(parse_event_kind("lunch"), std::nullopt);
}

}  // namespace
}  // namespace headroom
