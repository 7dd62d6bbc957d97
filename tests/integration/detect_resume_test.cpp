// headroom detect, killed again and again: with --resume it goes on where it
// ended, looks at nothing twice, and writes the files of a calm run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <opencv2/core.hpp>
#include <span>
#include <sstream>
#include <thread>

#include "configs/layers/model_table.h"
#include "parallel/base/binary_record.h"
#include "parallel/base/units.h"
#include "tests/integration/headroom_run.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/maps/geotiff.h"
#include "tests/worker/video/clips.h"
#include "worker/model/layer_graph.h"
#include "worker/weights/weights.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Files = std::map<std::string, std::string>;

// Its signals grow from layer to layer, so that pixels decide.
void write_weights(const fs::path& file) {
  const layers::ModelTable table = layers::load_model_table("yolov5n");
  model::LayerGraph model(table, 2, at::kFloat, 0);
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.name.ends_with("running_var")) entry.tensor->fill_(0.02);
  }
  auto metadata = layers::model_metadata("yolov5n", table);
  layers::describe_input(metadata, {64, 64}, 32);
  weights::save_weights(file, model.state(), metadata);
}

Geotiff map_at(int column, int row) {
  return {.transform = {500'000 + 0.1 * column, 0.1, 0, 5'400'000 - 0.1 * row,
                        0, -0.1},
          .system = "EPSG:32633",
          .options = {"TILED=YES", "BLOCKXSIZE=256", "BLOCKYSIZE=256"}};
}

// What a journal holds, record by record; the last may be torn.
std::vector<std::string> whole_records(const std::string& journal) {
  std::vector<std::string> records;
  if (journal.size() < 20) return records;
  size_t at = 20 + number_at<uint32_t>(journal, 12);
  while (at + 8 <= journal.size()) {
    const size_t size = number_at<uint32_t>(journal, at);
    if (at + 8 + size > journal.size()) break;
    records.push_back(journal.substr(at + 8, size));
    at += 8 + size;
  }
  return records;
}

bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info,
                  WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

// The most memory that the worker has had; 0 where the process is none yet.
int64_t peak_kib_of(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  bool is_worker = false;
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name, value;
    words >> name >> value;
    if (name == "Name:") is_worker = value.starts_with("headroom-worke");
    if (name == "VmHWM:" && is_worker) return std::stoll(value);
  }
  return 0;
}

class DetectResume : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("HEADROOM_MAP_PLUGIN", program("libheadroom_maps.so").c_str(), 1);
    // Two runs write the same date into their GeoPackages.
    setenv("OGR_CURRENT_DATE", "2026-11-26T00:00:00.000Z", 1);
    write_weights(folder_ / "w.safetensors");
    fs::create_directories(folder_ / "in");
  }
  void TearDown() override {
    unsetenv("HEADROOM_MAP_PLUGIN");
    unsetenv("OGR_CURRENT_DATE");
  }

  std::vector<std::string> detect(const std::string& name,
                                  const std::vector<std::string>& more) const {
    return joined(
        {program("headroom"), "detect",      "--weights",      "w.safetensors",
         "--source",          "in",          "--img",          "64",
         "--conf-thres",      "0",           "--max-det",      "20",
         "--save-csv",        "--save-json", "--save-geojson", "--save-gpkg",
         "--project",         "out",         "--name",         name},
        more);
  }
  fs::path results(const std::string& name) const {
    return folder_ / "out" / name;
  }
  Files files_of(const std::string& name) const {
    Files files;
    for (const auto& entry : fs::recursive_directory_iterator(results(name))) {
      if (!entry.is_regular_file()) continue;
      files[fs::relative(entry.path(), results(name)).string()] =
          text_of(entry.path());
    }
    return files;
  }
  fs::path journal_of(const std::string& name) const {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(results(name), ignored)) {
      if (entry.path().extension() == ".journal") return entry.path();
    }
    return {};
  }
  // Starts the command and kills it once `is_time`. False: it ended before.
  template <typename IsTime>
  bool kill_when(const std::vector<std::string>& command,
                 const IsTime& is_time) {
    Program run(command, folder_);
    while (!has_ended(run.pid()) && !is_time()) {
      peak_kib_ = std::max(peak_kib_, peak_kib_of(run.pid()));
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    run.signal(SIGKILL);
    return run.join().exit_code == 128 + SIGKILL;
  }
  size_t journal_size(const std::string& name) const {
    std::error_code none;
    const auto size = fs::file_size(journal_of(name), none);
    return none ? 0 : size;
  }
  // Kills the run whenever its journal has grown by so many bytes, and goes on,
  // until it ends. Returns how often.
  int kill_again_and_again(const std::string& name,
                           const std::vector<std::string>& more, size_t growth);

  const fs::path folder_ = fresh_folder();
  int64_t peak_kib_ = 0;  // the workers' that were killed
};

int DetectResume::kill_again_and_again(const std::string& name,
                                       const std::vector<std::string>& more,
                                       size_t growth) {
  int kills = 0;
  std::vector<std::string> before;
  std::vector<std::string> command = detect(name, more);
  size_t next = growth;
  while (kill_when(command, [&] { return journal_size(name) >= next; })) {
    const std::string journal = text_of(journal_of(name));
    const std::vector<std::string> after = whole_records(journal);
    // Nothing was looked at again: every look has a record.
    EXPECT_GT(after.size(), before.size());
    EXPECT_TRUE(std::ranges::equal(
        before, std::span(after).first(std::min(before.size(), after.size()))));
    if (kills > 0) {
      std::map<char, int> counts;  // by the kinds of DetectionJournal
      for (const std::string& record : before) ++counts[record.front()];
      EXPECT_THAT(
          text_of(folder_ / "stderr.txt"),
          HasSubstr(" goes on: " + counted(counts[1] + counts[3], "image") +
                    " and " + counted(counts[0] + counts[2], "tile") +
                    " were looked at before"));
    }
    before = after;
    next = journal.size() + growth;
    if (kills++ == 0) command.push_back("--resume");
  }
  return kills;
}

void expect_same(const Files& a, const Files& b) {
  for (const auto& [name, bytes] : a) {
    const auto other = b.find(name);
    if (other == b.end()) {
      ADD_FAILURE() << name << " is missing";
    } else {
      EXPECT_TRUE(other->second == bytes) << name;
    }
  }
  EXPECT_EQ(a.size(), b.size());
}

const std::vector<std::string> kTiles = {
    "--tile",     "64",          "--tile-overlap", "0.25",
    "--save-txt", "--save-conf", "--save-crop"};

// A mosaic of four maps, a plain image, a video.
class SmallDetectResume : public DetectResume {
 protected:
  void SetUp() override {
    DetectResume::SetUp();
    constexpr int kSide = 192;
    const cv::Mat whole = test_picture(2 * kSide, 2 * kSide, 1);
    for (int i = 0; i < 4; ++i) {
      const cv::Point corner(i % 2 * kSide, i / 2 * kSide);
      write_geotiff(folder_ / "in" / ("map" + std::to_string(i) + ".tif"),
                    whole(cv::Rect(corner, cv::Size(kSide, kSide))).clone(),
                    map_at(corner.x, corner.y));
    }
    std::ofstream(folder_ / "in/plain.bmp")
        << encode_bmp(test_picture(90, 90, 2));
    std::ofstream(folder_ / "in/clip.avi") << video::avi_clip(64, 64, 12);
    const ProgramResult calm = run_program(detect("calm", kTiles), folder_);
    ASSERT_EQ(calm.exit_code, 0) << calm.err;
    calm_ = files_of("calm");
    ASSERT_TRUE(journal_of("calm").empty());
  }

  Files calm_;
};

TEST_F(SmallDetectResume, KilledManyTimes_TheFilesAreThoseOfACalmRun) {
  EXPECT_GE(calm_.size(), 20u);
  EXPECT_GE(kill_again_and_again("killed", kTiles, 5'000), 10);
  expect_same(calm_, files_of("killed"));
}

TEST_F(SmallDetectResume, KilledAtItsBeginning_ANewRunBegins) {
  EXPECT_TRUE(kill_when(detect("killed", kTiles), [] { return true; }));
  const ProgramResult resumed =
      run_program(detect("killed", joined(kTiles, {"--resume"})), folder_);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err,
              HasSubstr("has no unfinished run: a new one begins"));
  expect_same(calm_, files_of("killed"));
}

TEST_F(SmallDetectResume, KilledWhileItFinishes_TheFilesAreThoseOfACalmRun) {
  kill_when(detect("killed", kTiles),
            [&] { return fs::exists(results("killed") / "predictions.csv"); });
  if (!journal_of("killed").empty()) {
    const ProgramResult resumed =
        run_program(detect("killed", joined(kTiles, {"--resume"})), folder_);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  }
  expect_same(calm_, files_of("killed"));
}

TEST_F(SmallDetectResume, OtherOptionsAreRefusedAndTheCommandIsNamed) {
  ASSERT_TRUE(kill_when(detect("killed", kTiles),
                        [&] { return journal_size("killed") > 3'000; }));
  const auto with = [&](const std::vector<std::string>& more) {
    return run_program(detect("killed", joined(kTiles, more)), folder_);
  };
  const ProgramResult other = with({"--agnostic-nms", "--resume"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("other options: it was given nothing more, "
                                   "this command --agnostic-nms"));
  EXPECT_THAT(other.err, HasSubstr("leave --resume out"));
  std::ofstream(folder_ / "in/plain.bmp")
      << encode_bmp(test_picture(90, 90, 3));
  EXPECT_THAT(with({"--resume"}).err, HasSubstr("other sources"));
  fs::rename(folder_ / "in/plain.bmp", folder_ / "plain.bmp");
  const ProgramResult anew = with({});
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_THAT(anew.err,
              AllOf(HasSubstr("out/killed is unfinished; to go on: "
                              "headroom detect --conf-thres=0 --img=64 "),
                    HasSubstr(" --name=killed --resume\n")));
  EXPECT_TRUE(fs::exists(results("killed2") / "predictions.csv"));
  EXPECT_FALSE(journal_of("killed").empty());
}

// Its folder keeps its name, whether it goes on or begins anew.
TEST_F(SmallDetectResume, WithExistOk_TheFilesAreThoseOfACalmRun) {
  std::vector<std::string> command =
      detect("killed", joined(kTiles, {"--exist-ok"}));
  for (const bool goes_on : {false, true}) {
    ASSERT_TRUE(
        kill_when(command, [&] { return journal_size("killed") > 9'000; }));
    std::vector<std::string> next = command;
    if (goes_on) next.push_back("--resume");
    const ProgramResult ended = run_program(next, folder_);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(goes_on ? "killed goes on: "
                                             : "killed is unfinished; to go "
                                               "on: "));
    expect_same(calm_, files_of("killed"));
  }
}

TEST_F(SmallDetectResume, InterruptedByHand_ItGoesOnToo) {
  Program run(detect("killed", kTiles), folder_);
  while (!has_ended(run.pid()) && journal_size("killed") < 20'000) {
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  run.signal(SIGINT);
  const ProgramResult ended = run.join();
  EXPECT_EQ(ended.exit_code, 130) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("to go on: headroom detect "));
  EXPECT_TRUE(fs::exists(results("killed") / "predictions.geojson"));
  const ProgramResult resumed =
      run_program(detect("killed", joined(kTiles, {"--resume"})), folder_);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same(calm_, files_of("killed"));
}

// A picture of 1.2 GB, which is never held.
class Slow : public DetectResume {};

TEST_F(Slow, AMapOf20000PixelsASide_KilledTenTimes) {
  constexpr int kSide = 20'000, kRows = 500;
  Geotiff map = map_at(0, 0);
  map.options.insert(map.options.end(), {"COMPRESS=JPEG", "PHOTOMETRIC=YCBCR"});
  write_geotiff(folder_ / "in/large.tif", test_picture(kRows, kSide, 1), map,
                kSide / kRows);
  const std::vector<std::string> tiles = {"--tile", "640", "--nosave"};
  const ProgramResult calm = run_program(detect("calm", tiles), folder_);
  ASSERT_EQ(calm.exit_code, 0) << calm.err;
  EXPECT_GE(kill_again_and_again("killed", tiles, 65'000), 10);
  expect_same(files_of("calm"), files_of("killed"));
  EXPECT_GT(peak_kib_, 0);
  EXPECT_LT(peak_kib_, 600 * 1024);
}

}  // namespace
}  // namespace headroom::testing
