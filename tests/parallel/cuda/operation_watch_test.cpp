#include "parallel/cuda/operation_watch.h"

#include <gtest/gtest.h>

namespace headroom::cuda {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The progress of an operation, which the test sets.
struct Progress {
  bool begun = false;
  bool ended = false;
};

OperationWatch::Operation operation(const std::string& name,
                                    Progress& progress) {
  return {name, [&] { return progress.begun; }, [&] { return progress.ended; }};
}

TEST(OperationWatch, TimeStartsWhenTheDeviceReachesIt) {
  const OperationWatch::Time start;
  OperationWatch watch(seconds(2));
  Progress sum;
  watch.add(operation("sum", sum));
  // After an hour in the queue the operation is not overdue: it has not begun.
  EXPECT_EQ(watch.overdue(start), std::nullopt);
  EXPECT_EQ(watch.overdue(start + seconds(3600)), std::nullopt);
  sum.begun = true;
  EXPECT_EQ(watch.overdue(start + seconds(3601)), std::nullopt);
  EXPECT_EQ(watch.overdue(start + seconds(3603)), std::nullopt);
  EXPECT_EQ(watch.overdue(start + seconds(3603) + milliseconds(1)), "sum");
}

TEST(OperationWatch, EachOperationHasItsOwnTime) {
  const OperationWatch::Time start;
  OperationWatch watch(seconds(2));
  Progress first, second;
  watch.add(operation("first", first));
  watch.add(operation("second", second));
  first.begun = true;
  EXPECT_EQ(watch.overdue(start), std::nullopt);
  first.ended = second.begun = true;
  EXPECT_EQ(watch.overdue(start + seconds(2)), std::nullopt);
  EXPECT_EQ(watch.overdue(start + seconds(4)), std::nullopt);
  EXPECT_EQ(watch.overdue(start + seconds(5)), "second");
  EXPECT_FALSE(watch.is_idle());
  second.ended = true;
  EXPECT_EQ(watch.overdue(start + seconds(6)), std::nullopt);
  EXPECT_TRUE(watch.is_idle());
}

TEST(OperationWatch, TimeInWhichAPeerWorksDoesNotCount) {
  const OperationWatch::Time start;
  OperationWatch watch(seconds(2));
  Progress sum;
  sum.begun = true;
  watch.add(operation("sum", sum));
  EXPECT_EQ(watch.overdue(start), std::nullopt);
  EXPECT_EQ(watch.overdue(start + seconds(5), /*a_peer_works=*/true),
            std::nullopt);
  EXPECT_EQ(watch.overdue(start + seconds(7), false), std::nullopt);
  EXPECT_EQ(watch.overdue(start + seconds(8), false), "sum");
}

}  // namespace
}  // namespace headroom::cuda
