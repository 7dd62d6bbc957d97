#include "coordinator/log/write_ahead_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "parallel/base/check.h"

namespace headroom::coordinator {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class WriteAheadLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::path(HEADROOM_BUILD_DIR) / "tests/write_ahead_log" / test->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  fs::path file() const { return folder_ / "log"; }

  std::vector<std::string> records() const {
    std::vector<std::string> found;
    WriteAheadLog::open(file(), &found);
    return found;
  }
  void write(const std::vector<std::string>& payloads) const {
    std::vector<std::string> ignored;
    const auto log = WriteAheadLog::open(file(), &ignored);
    for (const std::string& payload : payloads) log->append(payload);
    log->sync();
  }
  std::string bytes() const {
    std::ifstream in(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void set_bytes(const std::string& bytes) const {
    std::ofstream(file(), std::ios::binary) << bytes;
  }
  std::string refusal() const {
    try {
      records();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

TEST(Crc32c, MatchesRfc3720) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c("6789", crc32c("12345")), 0xe3069283u);
}

TEST_F(WriteAheadLogTest, GivesBackWhatWasAppended) {
  EXPECT_THAT(records(), IsEmpty());
  const std::string binary("\0\1\xff", 3);
  write({"one", binary});
  write({"three"});
  EXPECT_THAT(records(), ElementsAre("one", binary, "three"));
}

TEST_F(WriteAheadLogTest, ASecondUserIsRefusedByName) {
  std::vector<std::string> found;
  const auto first = WriteAheadLog::open(file(), &found);
  EXPECT_EQ(refusal(), "[log] " + file().string() +
                           " belongs to a coordinator that is running: stop "
                           "that one first, or name another log");
}

// As after kill -9 or a power failure in mid-write.
TEST_F(WriteAheadLogTest, AnEndTornAnywhereIsCut) {
  write({"first", "the second record"});
  const std::string whole = bytes();
  const size_t second = WriteAheadLog::kHeaderBytes + 8 + 5;
  for (size_t length = second; length < whole.size(); ++length) {
    set_bytes(whole.substr(0, length));
    std::vector<std::string> found;
    {
      const auto log = WriteAheadLog::open(file(), &found);
      EXPECT_EQ(log->torn_bytes(), static_cast<int64_t>(length - second));
      log->append("next");
    }
    EXPECT_THAT(found, ElementsAre("first")) << length;
    EXPECT_THAT(records(), ElementsAre("first", "next")) << length;
  }
  // A torn header belongs to a log that never held anything.
  for (size_t length = 0; length < WriteAheadLog::kHeaderBytes; ++length) {
    set_bytes(whole.substr(0, length));
    EXPECT_THAT(records(), IsEmpty()) << length;
  }
}

TEST_F(WriteAheadLogTest, ZeroesBehindTheLastRecordAreATornEnd) {
  write({"first"});
  set_bytes(bytes() + std::string(4096, '\0'));
  EXPECT_THAT(records(), ElementsAre("first"));
}

// Every byte of a record that has another behind it.
TEST_F(WriteAheadLogTest, ADamagedMiddleIsRefusedWithItsOffset) {
  write({"first", "second", "third"});
  const std::string whole = bytes();
  const size_t first = WriteAheadLog::kHeaderBytes;
  const size_t second = first + 8 + 5;
  const size_t third = second + 8 + 6;
  std::mt19937 random(1);
  for (size_t at = first; at < third; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
    set_bytes(damaged);
    const size_t begin = at < second ? first : second;
    EXPECT_THAT(refusal(),
                HasSubstr("is damaged at byte " + std::to_string(begin) +
                          ", and whole records follow at byte "))
        << at;
    EXPECT_EQ(bytes(), damaged) << "a refused log is left as it is";
  }
}

TEST_F(WriteAheadLogTest, AnotherVersionAndAnotherFileAreRefused) {
  write({"first"});
  std::string other = bytes();
  other[8] = 7;
  set_bytes(other);
  EXPECT_THAT(refusal(), HasSubstr("is of version 7, this program reads "
                                   "version 1"));
  set_bytes("step,loss\n1,2\n");
  EXPECT_THAT(refusal(), HasSubstr("is no log of a coordinator"));
  set_bytes("step");
  EXPECT_THAT(refusal(), HasSubstr("is no log of a coordinator"));
}

TEST_F(WriteAheadLogTest, ReplacingLeavesTheNewRecordsAndGoesOn) {
  {
    std::vector<std::string> found;
    const auto log = WriteAheadLog::open(file(), &found);
    for (int i = 0; i < 100; ++i) log->append("old");
    const int64_t before = log->bytes();
    log->replace({"snapshot"});
    EXPECT_LT(log->bytes(), before);
    log->append("new");
    log->sync();
  }
  EXPECT_THAT(records(), ElementsAre("snapshot", "new"));
  EXPECT_FALSE(fs::exists(file().string() + ".next"));
}

TEST_F(WriteAheadLogTest, AClearedLogIsEmpty) {
  {
    std::vector<std::string> found;
    const auto log = WriteAheadLog::open(file(), &found);
    log->append("wrong");
    log->clear();
  }
  EXPECT_THAT(records(), IsEmpty());
}

TEST_F(WriteAheadLogTest, OthersCannotReadIt) {
  write({"secret"});
  EXPECT_EQ(fs::status(file()).permissions() & fs::perms::mask,
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(WriteAheadLogTest, AFolderThatIsNotThereIsRefused) {
  std::vector<std::string> found;
  EXPECT_THROW(WriteAheadLog::open(folder_ / "no/log", &found), Error);
}

}  // namespace
}  // namespace headroom::coordinator
