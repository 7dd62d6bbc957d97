// What an unfinished run has found: read back in order, whatever a kill left.
#include "worker/detect/detection_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "parallel/base/check.h"
#include "tests/worker/data/data_files.h"

namespace headroom::detect {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = JournalRecord::Kind;

const JournalSubject kSubject{.weights = "w",
                              .sources = "s",
                              .options = {"--tile=64", "--save-json"},
                              .command = "headroom detect --resume"};

JournalRecord tile_record(int64_t unit, int64_t number) {
  metrics::Detection one;
  one.box = {1, 2, 3, static_cast<float>(number)};
  one.confidence = 0.5F;
  one.class_index = 7;
  return {.kind = Kind::kTile,
          .unit = unit,
          .number = number,
          .height = 0,
          .width = 0,
          .detections = {one}};
}

class DetectionJournalTest : public ::testing::Test {
 protected:
  fs::path results() const { return folder_.path() / "exp"; }
  fs::path file() const { return results() / kSubject.file_name(); }
  // Three tiles of the first image.
  void write_three() const {
    fs::create_directories(results());
    const auto journal = DetectionJournal::begin(results(), kSubject);
    for (int64_t number = 0; number < 3; ++number) {
      journal->append(tile_record(0, number));
    }
  }
  static std::vector<int64_t> numbers_in(DetectionJournal& journal) {
    std::vector<int64_t> numbers;
    while (const auto record = journal.next(Kind::kTile, 0)) {
      numbers.push_back(record->number);
    }
    return numbers;
  }

  TemporaryFolder folder_;
};

TEST_F(DetectionJournalTest, GivesWhatWasWrittenInItsOrder) {
  write_three();
  auto journal = DetectionJournal::go_on(file());
  EXPECT_FALSE(journal->next(Kind::kImage, 0));
  EXPECT_FALSE(journal->next(Kind::kTile, 1));
  const auto first = journal->next(Kind::kTile, 0);
  ASSERT_TRUE(first);
  ASSERT_EQ(first->detections.size(), 1u);
  EXPECT_EQ(first->detections[0].class_index, 7);
  EXPECT_EQ(first->detections[0].box.x2, 3);
  EXPECT_THAT(numbers_in(*journal), ElementsAre(1, 2));
  journal->append(tile_record(0, 3));
  journal.reset();
  EXPECT_EQ(numbers_in(*DetectionJournal::go_on(file())).size(), 4u);
}

TEST_F(DetectionJournalTest, ATornOrDamagedEndIsDropped) {
  write_three();
  const std::string whole = read_bytes(file());
  const size_t record = (whole.size() - whole.find("\"weights\"")) / 10;
  for (size_t lost = 1; lost < record; ++lost) {
    folder_.write("exp/" + kSubject.file_name(),
                  whole.substr(0, whole.size() - lost));
    const auto journal = DetectionJournal::go_on(file());
    ASSERT_THAT(numbers_in(*journal), ElementsAre(0, 1)) << lost;
    journal->append(tile_record(0, 2));
    ASSERT_EQ(read_bytes(file()), whole) << lost;
  }
  std::string damaged = whole;
  damaged[whole.size() - 100] ^= 1;  // in the second record
  folder_.write("exp/" + kSubject.file_name(), damaged);
  EXPECT_THAT(numbers_in(*DetectionJournal::go_on(file())), ElementsAre(0));
}

TEST_F(DetectionJournalTest, WhatIsNotAskedForIsForgotten) {
  write_three();
  {
    const auto journal = DetectionJournal::go_on(file());
    EXPECT_EQ(journal->next(Kind::kTile, 0)->number, 0);
    journal->append(tile_record(0, 9));
  }
  EXPECT_THAT(numbers_in(*DetectionJournal::go_on(file())), ElementsAre(0, 9));
}

TEST_F(DetectionJournalTest, OneProcessHasIt) {
  write_three();
  const auto held = DetectionJournal::go_on(file());
  EXPECT_TRUE(unfinished_runs(results(), /*only_there=*/true).empty());
  EXPECT_THROW(DetectionJournal::begin(results(), kSubject), Error);
  EXPECT_THROW(DetectionJournal::go_on(file()), Error);
}

TEST_F(DetectionJournalTest, RunsAreFoundByNumberAndSayWhatTheyAreAbout) {
  write_three();
  for (const char* name : {"exp2", "exp1", "expert"}) {
    fs::create_directories(folder_.path() / name);
    DetectionJournal::begin(folder_.path() / name, kSubject);
  }
  folder_.write("exp/detect-0123456789abcdef.journal", "torn");
  const auto runs = unfinished_runs(results(), /*only_there=*/false);
  ASSERT_EQ(runs.size(), 2u);
  for (const UnfinishedRun& run : runs) {
    EXPECT_EQ(run.subject.command, kSubject.command);
    EXPECT_EQ(run.journal.filename(), kSubject.file_name());
  }
  EXPECT_EQ(unfinished_runs(results(), /*only_there=*/true).size(), 1u);
  DetectionJournal::go_on(file())->remove();
  EXPECT_TRUE(unfinished_runs(results(), /*only_there=*/true).empty());
}

TEST(JournalSubject, NamesWhatDiffers) {
  JournalSubject other = kSubject;
  EXPECT_EQ(other.file_name(), kSubject.file_name());
  other.options = {"--save-json", "--tile=64"};
  EXPECT_EQ(other.file_name(), kSubject.file_name());
  other.options = {"--save-json", "--tile=32"};
  EXPECT_NE(other.file_name(), kSubject.file_name());
  EXPECT_EQ(other.difference_to(kSubject),
            "other options: it was given --tile=64, this command --tile=32");
  other = kSubject;
  other.sources = "t";
  EXPECT_THAT(other.difference_to(kSubject), HasSubstr("other sources"));
  other.weights = "v";
  EXPECT_EQ(other.difference_to(kSubject), "other weights");
}

TEST(SourcesDigest, ChangesWithAFile) {
  const TemporaryFolder folder;
  const std::vector<fs::path> files = {folder.write("a.bmp", "1"),
                                       folder.write("b.bmp", "1")};
  const std::string before = sources_digest(files);
  EXPECT_EQ(sources_digest(files), before);
  EXPECT_NE(sources_digest({files[0]}), before);
  folder.write("b.bmp", "12");
  const std::string longer = sources_digest(files);
  EXPECT_NE(longer, before);
  fs::last_write_time(files[1],
                      fs::last_write_time(files[1]) - std::chrono::seconds(5));
  EXPECT_NE(sources_digest(files), longer);
}

}  // namespace
}  // namespace headroom::detect
