// The detections of an unfinished run are read back in order, even if it was
// killed at any moment.
#include "worker/detect/detection_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <limits>
#include <random>
#include <string>

#include "parallel/base/binary_record.h"
#include "parallel/base/check.h"
#include "parallel/base/checksum.h"
#include "tests/worker/data/data_files.h"

namespace {

int syncs = 0;
bool is_disk_broken = false;

}  // namespace

// Replaces the C library's fdatasync by a counter.
extern "C" int fdatasync(int) {
  ++syncs;
  return 0;
}

// Fails as on a broken disk, if a test says so.
extern "C" ssize_t pread(int file, void* bytes, size_t size, off_t offset) {
  if (is_disk_broken) {
    errno = EIO;
    return -1;
  }
  return ::syscall(SYS_pread64, file, bytes, size, offset);
}

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

constexpr const char* kInFolder = "exp/detect.journal";

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
          .place = 0,
          .detections = {one}};
}

class DetectionJournalTest : public ::testing::Test {
 protected:
  fs::path results() const { return folder_.path() / "exp"; }
  fs::path file() const { return results() / kJournalName; }
  std::unique_ptr<DetectionJournal> go_on() const {
    return DetectionJournal::go_on(file(), kSubject.digest());
  }
  // Writes the records of three tiles of the first image.
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

TEST_F(DetectionJournalTest, ReturnsTheWrittenRecordsInOrder) {
  write_three();
  auto journal = go_on();
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
  EXPECT_EQ(numbers_in(*go_on()).size(), 4u);
}

TEST_F(DetectionJournalTest, BringsRecordsToDiskAtTheEndAndNowAndThen) {
  fs::create_directories(results());
  const auto start = std::chrono::steady_clock::now();
  syncs = 0;
  auto journal = DetectionJournal::begin(results(), kSubject);
  EXPECT_EQ(syncs, 1);
  for (int64_t i = 0; i < 300; ++i) journal->append(tile_record(0, i));
  const auto after = std::chrono::steady_clock::now() - start;
  EXPECT_LE(syncs, 1 + after / std::chrono::seconds(5));
  syncs = 0;
  journal.reset();
  EXPECT_EQ(syncs, 1);
  go_on().reset();
  EXPECT_EQ(syncs, 1);
  journal = go_on();
  journal->append(tile_record(0, 9));
  EXPECT_EQ(syncs, 2);
}

TEST_F(DetectionJournalTest, ATornOrDamagedEndIsDropped) {
  write_three();
  const std::string whole = read_bytes(file());
  const size_t record = (whole.size() - whole.find("\"weights\"")) / 10;
  for (size_t lost = 1; lost < record; ++lost) {
    folder_.write(kInFolder, whole.substr(0, whole.size() - lost));
    const auto journal = go_on();
    ASSERT_THAT(numbers_in(*journal), ElementsAre(0, 1)) << lost;
    journal->append(tile_record(0, 2));
    ASSERT_EQ(read_bytes(file()), whole) << lost;
  }
  std::string damaged = whole;
  damaged[whole.size() - 100] ^= 1;  // a byte of the second record
  folder_.write(kInFolder, damaged);
  EXPECT_THAT(numbers_in(*go_on()), ElementsAre(0));
}

TEST_F(DetectionJournalTest, RecordsThatAreNotReadBackAreForgotten) {
  write_three();
  {
    const auto journal = go_on();
    EXPECT_EQ(journal->next(Kind::kTile, 0)->number, 0);
    journal->append(tile_record(0, 9));
  }
  EXPECT_THAT(numbers_in(*go_on()), ElementsAre(0, 9));
}

TEST_F(DetectionJournalTest, ARefusedRecordIsForgottenWithAllThatFollow) {
  write_three();
  {
    const auto journal = go_on();
    const auto is_first = [](const JournalRecord& one) {
      return one.number == 0;
    };
    EXPECT_TRUE(journal->next(Kind::kTile, 0, is_first));
    EXPECT_FALSE(journal->next(Kind::kTile, 0, is_first));
    EXPECT_FALSE(journal->next(Kind::kTile, 0));
    journal->append(tile_record(0, 9));
  }
  EXPECT_THAT(numbers_in(*go_on()), ElementsAre(0, 9));
}

// Findings that cannot be read now would be cut off by the next record.
TEST_F(DetectionJournalTest, RecordsThatCannotBeReadAreKept) {
  write_three();
  const std::string whole = read_bytes(file());
  auto journal = go_on();
  is_disk_broken = true;
  EXPECT_THROW(journal->next(Kind::kTile, 0), Error);
  journal.reset();
  EXPECT_THROW(go_on(), Error);
  const auto runs = unfinished_runs(results(), /*only_there=*/true);
  is_disk_broken = false;
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].state, UnfinishedRun::State::kDamaged);
  EXPECT_EQ(read_bytes(file()), whole);
  EXPECT_THAT(numbers_in(*go_on()), ElementsAre(0, 1, 2));
}

TEST_F(DetectionJournalTest, OnlyOneProcessMayHoldIt) {
  write_three();
  const auto held = go_on();
  const auto runs = unfinished_runs(results(), /*only_there=*/true);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].state, UnfinishedRun::State::kHeld);
  EXPECT_EQ(runs[0].digest, kSubject.digest());
  EXPECT_THROW(DetectionJournal::begin(results(), kSubject), Error);
  EXPECT_THROW(go_on(), Error);
}

TEST_F(DetectionJournalTest, ANewRunReplacesAnothersJournal) {
  write_three();
  JournalSubject other = kSubject;
  other.weights = "v";
  DetectionJournal::begin(results(), other);
  EXPECT_EQ(go_on(), nullptr);
  const auto runs = unfinished_runs(results(), /*only_there=*/true);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].digest, other.digest());
  DetectionJournal::begin(results(), kSubject);
  EXPECT_THAT(numbers_in(*go_on()), ElementsAre());
  fs::remove(file());
  EXPECT_EQ(go_on(), nullptr);
}

TEST_F(DetectionJournalTest, RunsAreFoundByNumberAndDescribeThemselves) {
  write_three();
  for (const char* name : {"exp2", "exp1", "expert"}) {
    fs::create_directories(folder_.path() / name);
    DetectionJournal::begin(folder_.path() / name, kSubject);
  }
  folder_.write("exp3/detect.journal", "torn");
  const auto runs = unfinished_runs(results(), /*only_there=*/false);
  ASSERT_EQ(runs.size(), 3u);
  for (const UnfinishedRun& run : runs) {
    EXPECT_EQ(run.journal.filename(), kJournalName);
    if (run.journal.parent_path().filename() == "exp3") {
      EXPECT_EQ(run.state, UnfinishedRun::State::kDamaged);
    } else {
      EXPECT_EQ(run.state, UnfinishedRun::State::kFree);
      EXPECT_EQ(run.subject.command, kSubject.command);
      EXPECT_EQ(run.digest, kSubject.digest());
    }
  }
  EXPECT_EQ(unfinished_runs(results(), /*only_there=*/true).size(), 1u);
  go_on()->remove();
  EXPECT_TRUE(unfinished_runs(results(), /*only_there=*/true).empty());
}

// A journal that has the header `text` and one record with `payload`.
std::string journal_of(const std::string& text, const std::string& payload) {
  const uint32_t crc = crc32c(text);
  return "HEADRDET" + number_bytes(uint32_t{2}) +
         number_bytes(static_cast<uint32_t>(text.size())) + number_bytes(crc) +
         text + number_bytes(static_cast<uint32_t>(payload.size())) +
         number_bytes(crc32c(payload, crc)) + payload;
}

// The CRCs of these texts are right; only their types are wrong.
TEST_F(DetectionJournalTest, TextsOfOtherTypesAreDamage) {
  for (const char* text :
       {"[]", "7", "{", "{}", R"({"weights":1})",
        R"({"weights":"","sources":"","options":"","command":"",)"
        R"("version":"","digest":""})",
        R"({"weights":"","sources":"","options":[1],"command":"",)"
        R"("version":"","digest":""})",
        R"({"weights":"","sources":"","options":[],"command":null,)"
        R"("version":"","digest":""})",
        R"({"weights":"","sources":"","options":[],"command":"",)"
        R"("version":"","digest":[]})"}) {
    folder_.write(kInFolder, journal_of(text, "x"));
    const auto runs = unfinished_runs(results(), /*only_there=*/true);
    ASSERT_EQ(runs.size(), 1u) << text;
    EXPECT_EQ(runs[0].state, UnfinishedRun::State::kDamaged) << text;
    EXPECT_EQ(DetectionJournal::go_on(file(), ""), nullptr) << text;
  }
}

TEST_F(DetectionJournalTest, RecordsOfOtherSizesAreTorn) {
  write_three();
  const std::string whole = read_bytes(file());
  const size_t header = 20 + number_at<uint32_t>(whole, 12);
  const std::string text = whole.substr(20, header - 20);
  const std::string payload =
      whole.substr(header + 8, number_at<uint32_t>(whole, header));
  const auto numbers_of = [&](const std::string& changed) {
    folder_.write(kInFolder, journal_of(text, changed));
    return numbers_in(*go_on());
  };
  ASSERT_THAT(numbers_of(payload), ElementsAre(0));
  for (size_t size = 0; size < payload.size(); ++size) {
    EXPECT_THAT(numbers_of(payload.substr(0, size)), ElementsAre()) << size;
  }
  EXPECT_THAT(numbers_of(payload + "x"), ElementsAre());
  for (size_t at = 0; at < 49; at += at == 0 ? 1 : 8) {
    std::string changed = payload;
    changed[at == 0 ? 0 : at + 7] =
        '\x7f';  // the highest byte of the size, and of other fields
    const bool is_number = at > 0 && at < 41;
    if (is_number) changed[at + 7] = '\x80';
    EXPECT_THAT(numbers_of(changed), ElementsAre()) << at;
  }
}

// Whatever the disk damages, reading does not crash and gives no record that
// was not written.
TEST_F(DetectionJournalTest, MutationsGiveNoRecordThatWasNotWritten) {
  write_three();
  const std::string whole = read_bytes(file());
  std::mt19937 random(1);
  for (int i = 0; i < 600; ++i) {
    std::string changed = whole;
    const size_t at = random() % whole.size();
    if (i % 3 == 0) changed[at] = static_cast<char>(random());
    if (i % 3 == 1) changed.erase(at, 1 + random() % 40);
    if (i % 3 == 2) changed.insert(at, changed, random() % at, random() % 60);
    folder_.write(kInFolder, changed);
    const auto runs = unfinished_runs(results(), /*only_there=*/true);
    ASSERT_EQ(runs.size(), 1u);
    const auto journal = go_on();
    EXPECT_EQ(journal == nullptr, runs[0].digest != kSubject.digest());
    if (!journal) continue;
    const auto numbers = numbers_in(*journal);
    ASSERT_LE(numbers.size(), 3u);
    for (size_t n = 0; n < numbers.size(); ++n) {
      EXPECT_EQ(numbers[n], static_cast<int64_t>(n));
    }
  }
}

TEST(HasBoxesIn, RefusesOtherPlacesClassesAndNonNumbers) {
  const tiles::TileRect where{10, 20, 30, 40};
  JournalRecord record = tile_record(0, 0);
  metrics::Detection& one = record.detections[0];
  const auto fits = [&](const metrics::Corners& box, float confidence = 0.5F,
                        int32_t class_index = 1) {
    one = {box, confidence, class_index};
    return has_boxes_in(record, where, 2);
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(fits({20, 10, 60, 40}));
  EXPECT_FALSE(fits({18, 10, 60, 40}));
  EXPECT_FALSE(fits({20, 10, 1e9F, 40}));
  EXPECT_FALSE(fits({20, 10, 60, nan}));
  EXPECT_FALSE(fits({50, 10, 40, 40}));
  EXPECT_FALSE(fits({20, 10, 60, 40}, nan));
  EXPECT_FALSE(fits({20, 10, 60, 40}, 0.5F, 2));
  EXPECT_FALSE(fits({20, 10, 60, 40}, 0.5F, -1));
}

TEST(JournalSubject, NamesTheDifferences) {
  JournalSubject other = kSubject;
  other.command = "";
  other.options = {"--save-json", "--tile=64"};
  EXPECT_EQ(other.digest(), kSubject.digest());
  other.options = {"--save-json", "--tile=32"};
  EXPECT_NE(other.digest(), kSubject.digest());
  EXPECT_EQ(other.difference_to(kSubject),
            "other options: it was given --tile=64, this command --tile=32");
  other = kSubject;
  other.sources = "t";
  EXPECT_THAT(other.difference_to(kSubject), HasSubstr("other sources"));
  other.weights = "v";
  EXPECT_EQ(other.difference_to(kSubject), "other weights");
  other = kSubject;
  other.version = "0.0";
  EXPECT_NE(other.digest(), kSubject.digest());
  EXPECT_EQ(kSubject.difference_to(other), "headroom 0.0");
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
