// headroom detect is killed many times. With --resume it continues where it was
// killed, processes no image or tile twice, and writes the same files as an
// undisturbed run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <random>
#include <span>
#include <sstream>
#include <thread>

#include "configs/layers/model_table.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/binary_record.h"
#include "parallel/base/checksum.h"
#include "parallel/base/units.h"
#include "tests/integration/headroom_run.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/maps/geotiff.h"
#include "tests/worker/video/clips.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/model/layer_graph.h"
#include "worker/weights/weights.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Files = std::map<std::string, std::string>;

// Writes weights with which signals grow from layer to layer, so that the
// pixels have a visible effect on the boxes.
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

// The complete records of a journal, without an incomplete record at the end.
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

// A journal with a header of the given text, and with frames around the
// records.
std::string journal_with(const std::string& text,
                         const std::vector<std::string>& records) {
  uint32_t crc = crc32c(text);
  std::string journal = "HEADRDET" + number_bytes(uint32_t{2}) +
                        number_bytes(static_cast<uint32_t>(text.size())) +
                        number_bytes(crc) + text;
  for (const std::string& record : records) {
    crc = crc32c(record, crc);
    journal += number_bytes(static_cast<uint32_t>(record.size())) +
               number_bytes(crc) + record;
  }
  return journal;
}

bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info,
                  WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

// The peak memory of the worker; 0 while the process has not started.
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
    // Fixes the date that both runs write into their GeoPackages.
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
  // Starts the command and kills it once `is_time` returns true. Returns false
  // if it ended before.
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
  // Kills and resumes the run each time its journal has grown by `growth`
  // bytes, until the run ends. Returns the number of kills.
  int kill_again_and_again(const std::string& name,
                           const std::vector<std::string>& more, size_t growth);

  const fs::path folder_ = fresh_folder();
  int64_t peak_kib_ = 0;  // the largest of all killed workers
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
    // No image or tile is processed again, since each one is recorded.
    EXPECT_GT(after.size(), before.size());
    EXPECT_TRUE(std::ranges::equal(
        before, std::span(after).first(std::min(before.size(), after.size()))));
    if (kills > 0) {
      std::map<char, int> counts;  // key: kind of record
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

// The input is a mosaic of four maps, a plain image and a video.
class SmallDetectResume : public DetectResume {
 protected:
  void SetUp() override {
    DetectResume::SetUp();
    for (int i = 0; i < 4; ++i) write_map(i, 0);
    std::ofstream(folder_ / "in/plain.bmp")
        << encode_bmp(test_picture(90, 90, 2));
    std::ofstream(folder_ / "in/clip.avi") << video::avi_clip(64, 64, 12);
    const ProgramResult calm = run_program(detect("calm", kTiles), folder_);
    ASSERT_EQ(calm.exit_code, 0) << calm.err;
    calm_ = files_of("calm");
    ASSERT_TRUE(journal_of("calm").empty());
  }

  // Writes map `number` of two by two maps, moved by `moved` pixels to the
  // east.
  void write_map(int number, int moved) const {
    constexpr int kSide = 192;
    const cv::Mat whole = test_picture(2 * kSide, 2 * kSide, 1);
    const cv::Point corner(number % 2 * kSide, number / 2 * kSide);
    write_geotiff(folder_ / "in" / ("map" + std::to_string(number) + ".tif"),
                  whole(cv::Rect(corner, cv::Size(kSide, kSide))).clone(),
                  map_at(corner.x + moved, corner.y));
  }

  // Kills the run once at least four tiles on seams have been processed.
  bool kill_at_seams() {
    return kill_when(detect("killed", kTiles), [&] {
      const auto records = whole_records(text_of(journal_of("killed")));
      return std::ranges::count(records, '\2', [](const std::string& record) {
               return record.front();
             }) > 3;
    });
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

// Repeats until a kill happens between the first complete file and the end.
TEST_F(SmallDetectResume, KilledWhileItFinishes_TheFilesAreThoseOfACalmRun) {
  std::string name;
  const auto was_hit = [&] {
    return !journal_of(name).empty() &&
           fs::exists(results(name) / "predictions.csv");
  };
  for (int i = 1; i <= 40 && (name.empty() || !was_hit()); ++i) {
    name = "try" + std::to_string(i) + "x";
    kill_when(detect(name, kTiles),
              [&] { return fs::exists(results(name) / "predictions.csv"); });
  }
  ASSERT_TRUE(was_hit());
  const ProgramResult resumed =
      run_program(detect(name, joined(kTiles, {"--resume"})), folder_);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same(calm_, files_of(name));
}

TEST_F(SmallDetectResume, AnotherRunInItsFolderEndsIt) {
  const auto with = [&](const std::vector<std::string>& more) {
    return detect("killed", joined(joined(kTiles, {"--exist-ok"}), more));
  };
  const auto is_begun = [&] { return journal_size("killed") > 9'000; };
  ASSERT_TRUE(kill_when(with({}), is_begun));
  const auto first = fs::last_write_time(journal_of("killed"));
  ASSERT_TRUE(kill_when(with({"--agnostic-nms"}), [&] {
    return fs::last_write_time(journal_of("killed")) > first && is_begun();
  }));
  const ProgramResult refused = run_program(with({"--resume"}), folder_);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("other options"));
  ASSERT_EQ(run_program(with({"--agnostic-nms"}), folder_).exit_code, 0);
  const ProgramResult anew = run_program(with({"--resume"}), folder_);
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_THAT(anew.err, HasSubstr("has no unfinished run: a new one begins"));
  for (const char* name : {"predictions.csv", "predictions.json",
                           "predictions.geojson", "labels/plain.txt"}) {
    EXPECT_TRUE(files_of("killed")[name] == calm_[name]) << name;
  }
}

TEST_F(SmallDetectResume, WhileItRunsItIsNotResumed) {
  Program run(detect("killed", kTiles), folder_);
  while (!has_ended(run.pid()) && journal_size("killed") < 3'000) {
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  run.signal(SIGSTOP);
  const ProgramResult refused =
      run_program(detect("killed", joined(kTiles, {"--resume"})), folder_);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("the same command writes into "));
  EXPECT_THAT(refused.err, HasSubstr("out/killed now"));
  EXPECT_FALSE(fs::exists(results("killed2")));
  run.signal(SIGCONT);
  EXPECT_EQ(run.join().exit_code, 0);
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

// The input pattern matches the run's own results too.
TEST_F(SmallDetectResume, ItsOwnPicturesAreNoSources) {
  std::vector<std::string> command =
      detect("killed", joined(kTiles, {"--exist-ok"}));
  for (std::string& word : command) {
    if (word == "in") word = "*/*.*";
    if (word == "out") word = ".";
  }
  const fs::path journal = folder_ / "killed/detect.journal";
  ASSERT_TRUE(kill_when(command, [&] {
    std::error_code none;
    const auto size = fs::file_size(journal, none);
    return !none && size > 20'000 && fs::exists(folder_ / "killed/map0.jpg");
  }));
  const ProgramResult refused = run_program(command, folder_);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("is unfinished; to go on: "),
                                 HasSubstr("might be overwritten")));
  const ProgramResult resumed =
      run_program(joined(command, {"--resume"}), folder_);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("killed goes on: "));
  EXPECT_FALSE(fs::exists(journal));
  EXPECT_TRUE(text_of(folder_ / "killed/predictions.json") ==
              calm_["predictions.json"]);
}

TEST_F(SmallDetectResume, UnreadableSourcesAreRetriedBeforeTheFollowingOnes) {
  std::ofstream(folder_ / "in/a.bmp") << "BM and no picture";
  EXPECT_GE(kill_again_and_again("killed", kTiles, 20'000), 2);
  EXPECT_THAT(text_of(folder_ / "stderr.txt"),
              HasSubstr("in/a.bmp: truncated"));
  expect_same(calm_, files_of("killed"));
}

// After the map has moved, the tiles on seams that were already processed are
// at other places.
TEST_F(SmallDetectResume, AMovedMapGivesOtherSeams) {
  ASSERT_TRUE(kill_at_seams());
  const auto records = whole_records(text_of(journal_of("killed")));
  const auto tiles = std::ranges::count_if(
      records, [](const std::string& one) { return one.front() == 0; });
  // The file keeps its path, size and date.
  const fs::path map = folder_ / "in/map2.tif";
  const auto size = fs::file_size(map);
  const auto written = fs::last_write_time(map);
  write_map(2, 60);
  ASSERT_EQ(fs::file_size(map), size);
  fs::last_write_time(map, written);
  const ProgramResult resumed =
      run_program(detect("killed", joined(kTiles, {"--resume"})), folder_);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  // No tile on a seam is taken from the journal.
  EXPECT_THAT(resumed.err,
              HasSubstr("killed goes on: 4 images and " +
                        counted(tiles, "tile") + " were looked at before"));
  ASSERT_EQ(run_program(detect("moved", kTiles), folder_).exit_code, 0);
  const Files moved = files_of("moved");
  EXPECT_FALSE(moved.at("predictions.geojson") ==
               calm_.at("predictions.geojson"));
  expect_same(moved, files_of("killed"));
}

template <typename Value>
std::string with_value(std::string record, size_t at, Value value) {
  std::memcpy(record.data() + at, &value, sizeof value);
  return record;
}

// All journals have correct checksums, except those of random bytes.
TEST_F(SmallDetectResume, HostileJournalsChangeNothing) {
  ASSERT_TRUE(kill_at_seams());
  const std::string journal = text_of(journal_of("killed"));
  const std::string text = journal.substr(20, number_at<uint32_t>(journal, 12));
  const std::vector<std::string> records = whole_records(journal);
  std::vector<std::string> hostile;
  for (const char kind : {0, 1, 2}) {
    const auto one = std::ranges::find_if(records, [&](const std::string& r) {
      return r.front() == kind && r.size() > 49 + 24;
    });
    if (one == records.end()) continue;
    for (const std::string& bad :
         {with_value(*one, 9, int64_t{1} << 40),
          with_value(*one, 41, int64_t{1} << 40),
          with_value(*one, 17, int64_t{1} << 31),
          with_value(*one, 49 + 20, int32_t{99}),
          with_value(*one, 49 + 20, int32_t{-1}),
          with_value(*one, 49 + 8, 1e9F), with_value(*one, 0, uint8_t{200})}) {
      // An image's number and a tile's height occur in no output, so changes
      // there are not tested.
      if (kind != 1 && bad.substr(17, 8) != one->substr(17, 8)) continue;
      if (kind == 1 && bad.substr(9, 8) != one->substr(9, 8)) continue;
      auto changed = records;
      changed[static_cast<size_t>(one - records.begin())] = bad;
      hostile.push_back(journal_with(text, changed));
    }
  }
  EXPECT_GE(hostile.size(), 12u);
  std::mt19937 random(1);
  for (int i = 0; i < 12; ++i) {
    std::string changed = journal;
    for (int n = 0; n < 3; ++n) {
      changed[random() % changed.size()] = static_cast<char>(random());
    }
    hostile.push_back(changed);
  }
  hostile.push_back("");
  hostile.push_back(journal_with("[7]", records));
  const fs::path untouched = folder_ / "untouched";
  fs::copy(results("killed"), untouched, fs::copy_options::recursive);
  for (size_t i = 0; i < hostile.size(); ++i) {
    SCOPED_TRACE(i);
    fs::remove_all(folder_ / "out/killed");
    fs::copy(untouched, results("killed"), fs::copy_options::recursive);
    std::ofstream(results("killed") / "detect.journal") << hostile[i];
    const ProgramResult resumed = run_program(
        detect("killed", joined(kTiles, {"--exist-ok", "--resume"})), folder_);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    if (i + 1 == hostile.size()) {
      EXPECT_THAT(resumed.err,
                  HasSubstr("detect.journal cannot be read, is damaged or of "
                            "another version"));
    }
    expect_same(calm_, files_of("killed"));
  }
}

TEST_F(SmallDetectResume, TextOfAJournalCannotControlATerminal) {
  fs::create_directories(results("killed"));
  std::ofstream(results("killed") / "detect.journal") << journal_with(
      R"({"weights":"w","sources":"s","options":["\u001b[2J"],"version":"1",)"
      R"("command":"rm \u001b[2J\nx","digest":"d"})",
      {});
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--resume"}}) {
    const std::string err = run_program(detect("killed", more), folder_).err;
    EXPECT_THAT(err, HasSubstr("rm \\x1b[2J"));
    EXPECT_EQ(err.find('\x1b'), std::string::npos);
  }
}

// The results keep the folder's name, whether the run is resumed or a new one
// begins.
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

// Uses a picture of 1.2 GB, which is never completely in memory.
class Slow : public DetectResume {};

// Writes a cloud optimized GeoTIFF with the same pixels and with overviews.
void copy_optimized(const fs::path& from, const fs::path& to) {
  const GDALDatasetH source = GDALOpen(from.c_str(), GA_ReadOnly);
  std::array options{"COMPRESS=JPEG", static_cast<const char*>(nullptr)};
  const GDALDatasetH made =
      GDALCreateCopy(GDALGetDriverByName("COG"), to.c_str(), source, FALSE,
                     const_cast<char**>(options.data()), nullptr, nullptr);
  ASSERT_NE(made, nullptr);
  EXPECT_GE(GDALGetOverviewCount(GDALGetRasterBand(made, 1)), 3);
  GDALClose(made);
  GDALClose(source);
}

TEST_F(Slow, AMapOf20000PixelsASide_KilledTenTimes) {
  constexpr int kSide = 20'000, kRows = 500;
  Geotiff map = map_at(0, 0);
  map.options.push_back("COMPRESS=LZW");
  write_geotiff(folder_ / "plain.tif", test_picture(kRows, kSide, 1), map,
                kSide / kRows);
  copy_optimized(folder_ / "plain.tif", folder_ / "in/large.tif");
  fs::remove(folder_ / "plain.tif");
  const std::vector<std::string> tiles = {"--tile", "640"};
  const ProgramResult calm = run_program(detect("calm", tiles), folder_);
  ASSERT_EQ(calm.exit_code, 0) << calm.err;
  EXPECT_GE(kill_again_and_again("killed", tiles, 65'000), 10);
  expect_same(files_of("calm"), files_of("killed"));
  EXPECT_TRUE(files_of("calm").contains("large.jpg"));
  EXPECT_GT(peak_kib_, 0);
  EXPECT_LT(peak_kib_, 600 * 1024);
}

// At that time all tiles are in the journal, so the journal does not grow.
TEST_F(Slow, ALargePicture_KilledWhileItIsDrawnAndCropped) {
  constexpr int kSide = 14'000;
  cv::Mat picture;
  cv::resize(test_picture(280, 280, 3), picture, {kSide, kSide}, 0, 0,
             cv::INTER_NEAREST);
  write_whole_file(folder_ / "in/large.png", codecs::encode_png_bytes(picture));
  picture.release();
  const std::vector<std::string> tiles = {"--tile", "3500", "--tile-overlap",
                                          "0", "--save-crop"};
  constexpr size_t kTilesOfAll = 16;
  const ProgramResult calm = run_program(detect("calm", tiles), folder_);
  ASSERT_EQ(calm.exit_code, 0) << calm.err;
  const auto are_looked_at = [&] {
    return whole_records(text_of(journal_of("killed"))).size() >= kTilesOfAll;
  };
  EXPECT_TRUE(kill_when(detect("killed", tiles), are_looked_at));
  std::vector<std::string> again = detect("killed", tiles);
  again.push_back("--resume");
  for (const char* made : {"large.jpg", "crops"}) {
    EXPECT_TRUE(
        kill_when(again, [&] { return fs::exists(results("killed") / made); }));
  }
  const ProgramResult whole = run_program(again, folder_);
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.err, HasSubstr("16 tiles were looked at before"));
  expect_same(files_of("calm"), files_of("killed"));
  EXPECT_LT(peak_kib_, 600 * 1024);
}

}  // namespace
}  // namespace headroom::testing
