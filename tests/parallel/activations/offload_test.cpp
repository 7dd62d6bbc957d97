#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/sigmoid.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <csignal>
#include <string>
#include <vector>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/offload_policy.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"

namespace headroom::activations {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<char> bytes_of(char value, size_t count) {
  return std::vector<char>(count, value);
}

TEST(OffloadFile, BytesAreReadBackAndRoomIsReused) {
  OffloadFile file(0);
  const auto a = bytes_of('a', 1000), b = bytes_of('b', 3000),
             c = bytes_of('c', 1000);
  const int64_t at_a = file.write(a.data(), 1000);
  const int64_t at_b = file.write(b.data(), 3000);
  const int64_t at_c = file.write(c.data(), 1000);
  EXPECT_EQ(file.size(), 5000);
  std::vector<char> back(3000);
  file.read(at_b, back.data(), 3000);
  EXPECT_EQ(back, b);
  // Neighbouring gaps are merged into one.
  file.release(at_a, 1000);
  file.release(at_b, 3000);
  EXPECT_EQ(file.used_bytes(), 1000);
  const auto d = bytes_of('d', 3500);
  const int64_t at_d = file.write(d.data(), 3500);
  EXPECT_EQ(file.size(), 5000);
  back.resize(3500);
  file.read(at_d, back.data(), 3500);
  EXPECT_EQ(back, d);
  back.resize(1000);
  file.read(at_c, back.data(), 1000);
  EXPECT_EQ(back, c) << "untouched";
}

TEST(OffloadFile, ItsLimitIsReportedInNumbers) {
  OffloadFile file(int64_t{2} << 20);
  const auto block = bytes_of('x', 3 << 19);
  const int64_t place = file.write(block.data(), 3 << 19);
  EXPECT_THAT([&] { file.write(block.data(), 3 << 19); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("tensors of 3 MiB (3145728 bytes) are to be "
                                  "offloaded, but --host-memory-limit is 2 MiB "
                                  "(2097152 bytes)"),
                        HasSubstr("--activations recompute"))));
  file.release(place, 3 << 19);
  EXPECT_NO_THROW(file.write(block.data(), 3 << 19));
}

// A limit on the size of files simulates a full disk.
TEST(OffloadFile, AFullDiskIsAnErrorAndLeavesNothingBehind) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 4096;
  setrlimit(RLIMIT_FSIZE, &small);
  OffloadFile file(0);
  const auto block = bytes_of('x', 10000);
  EXPECT_THAT([&] { file.write(block.data(), 10000); },
              ThrowsMessage<Error>(AllOf(HasSubstr("[offload] writing"),
                                         HasSubstr("set TMPDIR"))));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(file.used_bytes(), 0);
}

TEST(OffloadFile, WithoutAFolderTheErrorNamesTmpdir) {
  const char* before = getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  setenv("TMPDIR", "/nowhere/at/all", 1);
  EXPECT_THAT([] { OffloadFile file(0); },
              ThrowsMessage<Error>(HasSubstr("set TMPDIR to a folder")));
  if (before != nullptr) {
    setenv("TMPDIR", kept.c_str(), 1);
  } else {
    unsetenv("TMPDIR");
  }
}

TEST(OffloadPolicy, TensorsComeBackToTheBitAndMemoryIsFree) {
  CountingAllocator::install();
  install_saved_tensor_policies();
  constexpr int64_t kSize = 1 << 14;
  const at::Tensor x = at::rand({kSize}, at::kDouble).requires_grad_();
  const auto network = [&x] {
    // Both the sigmoid and the two products save this tensor.
    const at::Tensor y = at::sigmoid(x);
    return at::mul(y, at::mul(y, y)).sum();
  };
  network().backward();
  const at::Tensor expected = x.grad().clone();
  x.mutable_grad().reset();

  OffloadPolicy offload(0);
  const int64_t before = CountingAllocator::instance().live_bytes();
  at::Tensor sum;
  {
    const SavedTensorPolicyGuard guard(&offload);
    sum = network();
  }
  EXPECT_LT(CountingAllocator::instance().live_bytes() - before, 8 * kSize);
  ASSERT_NE(offload.file(), nullptr);
  EXPECT_EQ(offload.file()->used_bytes(), 2 * 8 * kSize)
      << "y once, however many save it, and y * y";
  sum.backward();
  EXPECT_TRUE(at::equal(x.grad(), expected));
  EXPECT_EQ(offload.file()->used_bytes(), 0);
}

TEST(OffloadPolicy, WindowsIntoOneMemoryAreDistinguished) {
  install_saved_tensor_policies();
  const at::Tensor whole = at::rand({2, 4096}, at::kDouble);
  OffloadPolicy offload(0);
  const auto first = offload.pack(whole[0]);
  const auto second = offload.pack(whole[1]);
  const auto columns = offload.pack(whole.narrow(1, 0, 2048));
  EXPECT_TRUE(at::equal(first(), whole[0]));
  EXPECT_TRUE(at::equal(second(), whole[1]));
  EXPECT_TRUE(at::equal(columns(), whole.narrow(1, 0, 2048)));
}

}  // namespace
}  // namespace headroom::activations
