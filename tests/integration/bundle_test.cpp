// Runs the bundle as on a machine that has only the C and C++ libraries and
// LibTorch: it is unpacked in an empty folder, and a mounted folder hides all
// other libraries of the system.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int64_t kLimitBytes = int64_t{40} << 20;

ProgramResult pack(const fs::path& out, const std::vector<std::string>& more) {
  ::setenv("HEADROOM_LIBTORCH", HEADROOM_LIBTORCH_ROOT, 1);
  ::setenv("HEADROOM_BUILD_FOLDER", HEADROOM_BUILD_DIR, 1);
  std::vector<std::string> command = {
      "bash", HEADROOM_SOURCE_DIR "/deploy/bundle/bundle.sh", out.string()};
  command.insert(command.end(), more.begin(), more.end());
  return run_program(command, out.parent_path());
}

// Mounts a folder over the system's library folder. It has only the system
// libraries that a bundle may use.
const std::string kHideLibraries = R"sh(
set -eu
machine="$(dirname "$(readlink -f "$(ldd /bin/sh | awk '/libc.so/{print $3}')")")"
only="$PWD/only"
mkdir "$only"
for name in ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libdl.so.2 librt.so.1 \
  libpthread.so.0 libresolv.so.2 libutil.so.1 libstdc++.so.6 libgcc_s.so.1; do
  if [ -e "$machine/$name" ]; then cp -L "$machine/$name" "$only"; fi
done
mount --bind "$only" "$machine"
root="$1"
shift
exec env -i PATH=/usr/bin:/bin HEADROOM_LIBTORCH="$root" "$@"
)sh";

class Bundle : public ::testing::Test {
 protected:
  // Runs a program of the unpacked bundle in `folder` with only its own
  // libraries and LibTorch.
  ProgramResult run_alone(const fs::path& folder,
                          std::vector<std::string> command) {
    fs::remove_all(folder / "only");
    command.insert(command.begin(),
                   {"unshare", "--mount", "sh", "-c", kHideLibraries, "sh",
                    HEADROOM_LIBTORCH_ROOT});
    return run_program(command, folder);
  }
};

TEST_F(Bundle, RunsWhereThereIsOnlyLibTorch) {
  const fs::path folder = fresh_folder();
  if (run_program({"unshare", "--mount", "true"}, folder).exit_code != 0) {
    GTEST_SKIP() << "no mount name space of its own: needs root";
  }
  const fs::path packed = folder / "headroom.tar.gz";
  const ProgramResult made = pack(packed, {});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_LE(static_cast<int64_t>(fs::file_size(packed)), kLimitBytes);
  const fs::path away = folder / "away";
  fs::create_directories(away);
  ASSERT_EQ(run_program({"tar", "xzf", packed.string()}, away).exit_code, 0);

  // Checks that the hidden libraries really are missing.
  const ProgramResult missing =
      run_alone(away, {program("headroom"), "--help"});
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.err, HasSubstr("cannot open shared object file"));
  const ProgramResult help =
      run_alone(away, {"headroom/bin/headroom", "--help"});
  ASSERT_EQ(help.exit_code, 0) << help.err;
  EXPECT_THAT(help.out, HasSubstr("headroom"));
  const ProgramResult planned = run_alone(
      away, {"headroom/bin/headroom", "plan", "--cfg", "yolov5n", "--img", "64",
             "--batch", "4", "--processes", "1", "--threads", "1",
             "--synthetic-input", "--max-steps", "3", "--write", "ask"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const ProgramResult run =
      run_alone(away, {"headroom/bin/headroom-worker", "--standalone",
                       "ask/run.yaml", "--run-directory", "run"});
  ASSERT_EQ(run.exit_code, 0) << run.err;

  // Compares with the programs as built, which use all libraries of this
  // machine.
  const ProgramResult built =
      run_program({program("headroom-worker"), "--standalone", "ask/run.yaml",
                   "--run-directory", "built"},
                  away);
  ASSERT_EQ(built.exit_code, 0) << built.err;
  const std::vector<Json> one = read_lines(away / "run/steps.jsonl");
  const std::vector<Json> other = read_lines(away / "built/steps.jsonl");
  ASSERT_EQ(one.size(), 3u);
  ASSERT_EQ(other.size(), 3u);
  for (size_t step = 0; step < one.size(); ++step) {
    EXPECT_EQ(one[step].at("loss"), other[step].at("loss"));
    EXPECT_EQ(one[step].at("grad_norm"), other[step].at("grad_norm"));
  }

  // `headroom train` starts its coordinator, agent and workers from the bundle
  // too.
  const ProgramResult trained = run_alone(
      away, {"headroom/bin/headroom", "train", "--cfg", "yolov5n", "--img",
             "64", "--batch", "4", "--processes", "2", "--threads", "1",
             "--synthetic-input", "--max-steps", "2"});
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(read_lines(away / "runs/train/exp/steps.jsonl").size(), 2u);

  const fs::path older = away / "older/torch";
  fs::create_directories(older / "lib");
  std::ofstream(older / "lib/libtorch_cpu.so") << "";
  fs::create_directories(older / "include/torch/headeronly");
  std::ofstream(older / "include/torch/headeronly/version.h")
      << "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 10\n";
  const std::string launcher = (away / "headroom/bin/headroom-worker").string();
  const std::map<std::string, std::string> refusals = {
      {"", "HEADROOM_LIBTORCH is not set"},
      {"HEADROOM_LIBTORCH=" + older.parent_path().string(),
       "is LibTorch 2.10, but 2.11 is needed"},
      {"HEADROOM_LIBTORCH=" + away.string(),
       "holds no torch/lib/libtorch_cpu"}};
  for (const auto& [setting, why] : refusals) {
    std::vector<std::string> command = {"env", "-i", "PATH=/usr/bin:/bin"};
    if (!setting.empty()) command.push_back(setting);
    command.insert(command.end(), {launcher, "--standalone", "ask/run.yaml"});
    const ProgramResult refused = run_program(command, away);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr(why));
  }
  for (const char* tool : {"pack", "prune", "detect"}) {
    const ProgramResult refused = run_program(
        {"env", "-i", "PATH=/usr/bin:/bin", away / "headroom/bin/headroom",
         tool, "--data", "data.yaml"},
        away);
    EXPECT_EQ(refused.exit_code, 2) << tool;
    EXPECT_THAT(refused.err, HasSubstr("HEADROOM_LIBTORCH is not set"));
  }
}

TEST_F(Bundle, TooLargeIsRefusedWithBothNumbers) {
  const fs::path folder = fresh_folder();
  const ProgramResult refused = pack(folder / "out.tar.gz", {"1"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, ::testing::ContainsRegex(
                               "has [0-9]+ bytes, but may have 1048576"));
  EXPECT_FALSE(fs::exists(folder / "out.tar.gz"));
}

}  // namespace
}  // namespace headroom::testing
