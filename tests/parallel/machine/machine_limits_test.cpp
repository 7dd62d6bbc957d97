#include "parallel/machine/machine_limits.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_folder.h"

namespace headroom::testing {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

// A machine of 64 GiB and 16 cores, of which 40 GiB are free.
class MachineLimitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write("proc/meminfo",
          "MemTotal:       67108864 kB\nMemFree:         1024 kB\n"
          "MemAvailable:   41943040 kB\n");
    write("proc/self/status",
          "Name:\theadroom\nCpus_allowed:\tffff\nCpus_allowed_list:\t0-15\n");
    write("proc/vmstat", "nr_free_pages 1\noom_kill 7\n");
  }

  void write(const std::string& name, const std::string& text) const {
    folder_.write(name, text);
  }
  void write_bytes(const std::string& name, int64_t mebibytes) const {
    write(name, std::to_string(mebibytes * kMebibyte) + "\n");
  }
  // Version 2 as Kubernetes mounts it: the container's group is the root.
  void use_v2(const std::string& group = "/") const {
    write("proc/self/mountinfo",
          "22 21 0:20 / /proc rw - proc proc rw\n"
          "30 21 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n");
    write("proc/self/cgroup", "0::" + group + "\n");
  }
  // Version 1 where /proc names the group from the machine's root.
  void use_v1() const {
    write("proc/self/mountinfo",
          "31 30 0:27 /docker/ab /sys/fs/cgroup/memory ro master:9 - cgroup "
          "cgroup rw,memory\n"
          "32 30 0:28 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup "
          "rw,cpu,cpuacct\n"
          "33 30 0:29 /docker/ab /sys/fs/cgroup/pids ro - cgroup cgroup "
          "rw,pids\n");
    write("proc/self/cgroup",
          "5:pids:/docker/ab\n4:memory:/docker/ab\n"
          "3:cpu,cpuacct:/docker/ab\n");
  }
  MachineLimits limits() const { return read_machine_limits(folder_.path()); }

  TemporaryFolder folder_;
};

TEST_F(MachineLimitsTest, WithoutLimitsTheMachineHolds) {
  const MachineLimits found = limits();
  EXPECT_EQ(found.memory_text(), "64 GiB of this machine, 40 GiB free");
  EXPECT_FALSE(found.memory_is_of_container);
  EXPECT_EQ(found.cores, 16);
  EXPECT_FALSE(found.cores_are_of_container);
  EXPECT_FALSE(found.most_threads);
  EXPECT_EQ(found.oom_kills, 7) << "no group counts: the machine's number";
}

TEST_F(MachineLimitsTest, TheLimitOfVersion2HoldsAndCachedFilesAreFree) {
  use_v2();
  write_bytes("sys/fs/cgroup/memory.max", 500);
  write_bytes("sys/fs/cgroup/memory.current", 90);
  write("sys/fs/cgroup/memory.stat",
        "anon 1\ninactive_file 10485760\nactive_file 10485760\n");
  write("sys/fs/cgroup/memory.high", "max\n");
  write("sys/fs/cgroup/memory.events", "low 0\noom 3\noom_kill 2\n");
  write("sys/fs/cgroup/cpu.max", "250000 100000\n");
  write("sys/fs/cgroup/pids.max", "120\n");
  const MachineLimits found = limits();
  EXPECT_EQ(found.memory_text(),
            "500 MiB by the container's limit (cgroup), 430 MiB free");
  EXPECT_TRUE(found.memory_is_of_container);
  EXPECT_EQ(found.cores, 3) << "two and a half cores are rounded up";
  EXPECT_TRUE(found.cores_are_of_container);
  EXPECT_EQ(found.most_threads, 120);
  EXPECT_EQ(found.oom_kills, 2);
}

TEST_F(MachineLimitsTest, TheLimitOfAGroupAroundTheProcessHolds) {
  use_v2("/job/step/task");
  const std::string at = "sys/fs/cgroup/job/step/";
  folder_.folder(at + "task");
  write(at + "task/memory.max", "max\n");
  write_bytes(at + "memory.max", 8000);
  write_bytes(at + "memory.current", 1000);
  write_bytes("sys/fs/cgroup/job/memory.max", 9000);
  write_bytes("sys/fs/cgroup/job/memory.current", 8900);
  // The job's limit is larger, but less is left: its other steps use memory.
  EXPECT_EQ(limits().free_bytes, 100 * kMebibyte);
  EXPECT_EQ(limits().memory_bytes, 9000 * kMebibyte);
  write("sys/fs/cgroup/job/memory.max", "max\n");
  EXPECT_EQ(limits().free_bytes, 7000 * kMebibyte);
  write_bytes(at + "task/memory.high", 600);
  write_bytes(at + "task/memory.current", 200);
  EXPECT_EQ(limits().free_bytes, 400 * kMebibyte) << "memory.high is a limit";
}

TEST_F(MachineLimitsTest, LimitsOfVersion1Hold) {
  use_v1();
  const std::string memory = "sys/fs/cgroup/memory/";
  write_bytes(memory + "memory.limit_in_bytes", 2048);
  write_bytes(memory + "memory.usage_in_bytes", 1024);
  write(memory + "memory.stat",
        "inactive_file 5\ntotal_inactive_file 536870912\n");
  write(memory + "memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/pids/pids.max", "64\n");
  const MachineLimits found = limits();
  EXPECT_EQ(found.memory_text(),
            "2 GiB by the container's limit (cgroup), 1.5 GiB free");
  EXPECT_EQ(found.cores, 2);
  EXPECT_EQ(found.most_threads, 64);
  EXPECT_EQ(found.oom_kills, 4);
}

TEST_F(MachineLimitsTest, AGroupWhoseNameBeginsAlikeIsNotInsideTheMount) {
  use_v1();
  write("proc/self/cgroup", "4:memory:/docker/abc\n");
  // The group is /docker/ab; "c" would be the rest of the name.
  folder_.folder("sys/fs/cgroup/memory/c");
  write_bytes("sys/fs/cgroup/memory/c/memory.limit_in_bytes", 100);
  EXPECT_FALSE(limits().memory_is_of_container);
}

// After the kill the container has more free memory than the machine. Its limit
// is named nevertheless.
TEST_F(MachineLimitsTest, AKillNamesTheLimitThatCountedIt) {
  use_v2();
  write_bytes("sys/fs/cgroup/memory.max", 60 * 1024);
  write_bytes("sys/fs/cgroup/memory.current", 1024);
  write("sys/fs/cgroup/memory.events", "oom 1\noom_kill 1\n");
  EXPECT_FALSE(limits().memory_is_of_container);
  EXPECT_EQ(limits().oom_limit_text(),
            "60 GiB by the container's limit (cgroup)");
  write("sys/fs/cgroup/memory.events", "oom 0\noom_kill 0\n");
  EXPECT_EQ(limits().oom_limit_text(), "64 GiB of this machine");
}

TEST_F(MachineLimitsTest, GroupsWithoutLimitsHoldNothing) {
  use_v1();
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/pids/pids.max", "max\n");
  const MachineLimits found = limits();
  EXPECT_FALSE(found.memory_is_of_container);
  EXPECT_EQ(found.cores, 16);
  EXPECT_FALSE(found.most_threads);
}

TEST_F(MachineLimitsTest, ALimitAboveTheFreeMemoryLeavesTheMachineInCharge) {
  use_v2();
  write_bytes("sys/fs/cgroup/memory.max", 60 * 1024);
  write_bytes("sys/fs/cgroup/memory.current", 1024);
  EXPECT_EQ(limits().memory_text(), "64 GiB of this machine, 40 GiB free");
}

TEST_F(MachineLimitsTest, CoresOutsideTheMaskDoNotCount) {
  use_v2();
  write("proc/self/status", "Cpus_allowed_list:\t0-1,8,12-13\n");
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(limits().cores, 5);
  write("sys/fs/cgroup/cpu.max", "10000 100000\n");
  EXPECT_EQ(limits().cores, 1) << "a tenth of a core still runs one thread";
  EXPECT_EQ(limits().cores_of_mask, 5);
}

TEST_F(MachineLimitsTest, AFolderWithoutFilesGivesOneCoreAtLeast) {
  const TemporaryFolder nothing;
  const MachineLimits found = read_machine_limits(nothing.path());
  EXPECT_EQ(found.memory_bytes, 0);
  EXPECT_GE(found.cores, 1);
}

}  // namespace
}  // namespace headroom::testing
