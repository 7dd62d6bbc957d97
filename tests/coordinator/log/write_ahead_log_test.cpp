#include "coordinator/log/write_ahead_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <thread>

#include "parallel/base/check.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/file_size_limit.h"

namespace headroom::coordinator {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
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
  // Simulates that the newest records were appended, but not yet synced.
  void forget_syncs() const { fs::resize_file(file().string() + ".lock", 0); }
  // The bytes of the record with this index in the file `whole`.
  static std::string record(const std::string& whole, int index) {
    size_t at = WriteAheadLog::kHeaderBytes;
    for (int i = 0;; ++i) {
      const size_t size =
          WriteAheadLog::kFrameBytes + static_cast<uint8_t>(whole[at]);
      if (i == index) return whole.substr(at, size);
      at += size;
    }
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

TEST_F(WriteAheadLogTest, ReturnsTheAppendedRecords) {
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

TEST_F(WriteAheadLogTest, ACallThatOnlyProbesTheLockIsWaitedFor) {
  write({"one"});
  const int asker =
      ::open((file().string() + ".lock").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(asker, LOCK_SH | LOCK_NB), 0);
  std::thread answer([asker] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ::close(asker);
  });
  EXPECT_EQ(refusal(), "");
  answer.join();
}

// Simulates kill -9 or a power failure in mid-write.
TEST_F(WriteAheadLogTest, AnEndTornAnywhereIsCut) {
  write({"first", "the second record"});
  const std::string whole = bytes();
  const size_t second =
      WriteAheadLog::kHeaderBytes + WriteAheadLog::kFrameBytes + 5;
  for (size_t length = second; length < whole.size(); ++length) {
    forget_syncs();
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
  // A log with an incomplete header never held a record.
  for (size_t length = 0; length < WriteAheadLog::kHeaderBytes; ++length) {
    forget_syncs();
    set_bytes(whole.substr(0, length));
    EXPECT_THAT(records(), IsEmpty()) << length;
  }
}

TEST_F(WriteAheadLogTest, ZeroesBehindTheLastRecordAreATornEnd) {
  write({"first"});
  set_bytes(bytes() + std::string(4096, '\0'));
  EXPECT_THAT(records(), ElementsAre("first"));
}

// Damages every byte of a record that is followed by another one.
TEST_F(WriteAheadLogTest, ADamagedMiddleIsRefusedWithItsOffset) {
  write({"first", "second", "third"});
  const std::string whole = bytes();
  const size_t first = WriteAheadLog::kHeaderBytes;
  const size_t second = first + WriteAheadLog::kFrameBytes + 5;
  const size_t third = second + WriteAheadLog::kFrameBytes + 6;
  std::mt19937 random(1);
  for (size_t at = first; at < third; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
    set_bytes(damaged);
    const size_t begin = at < second ? first : second;
    const std::string number = at < second ? "1" : "2";
    EXPECT_THAT(
        refusal(),
        AnyOf(HasSubstr("is damaged at byte " + std::to_string(begin) +
                        ", in record " + number + ", and record "),
              HasSubstr("where record " + number + " belongs there is ")))
        << at;
    EXPECT_EQ(bytes(), damaged) << "a refused log is left as it is";
  }
}

// Each record is valid by itself, but does not fit the records around it.
TEST_F(WriteAheadLogTest, ARecordRemovedDoubledOrMovedIsRefusedByItsNumber) {
  write({"one", "two", "three", "four"});
  const std::string whole = bytes();
  const std::string head = whole.substr(0, WriteAheadLog::kHeaderBytes);
  const auto arranged = [&](const std::vector<int>& order) {
    std::string text = head;
    for (const int index : order) text += record(whole, index);
    return text;
  };
  const std::map<std::string, std::vector<int>> damages = {
      {"where record 1 belongs there is record 2", {1, 2, 3}},
      {"where record 2 belongs there is record 3", {0, 2, 3}},
      {"where record 3 belongs there is record 2", {0, 1, 1, 2, 3}},
      {"where record 2 belongs there is record 4", {0, 3, 2, 1}},
      {"where record 5 belongs there is record 1", {0, 1, 2, 3, 0}}};
  for (const auto& [words, order] : damages) {
    set_bytes(arranged(order));
    EXPECT_THAT(refusal(), HasSubstr("has a broken chain: " + words));
    EXPECT_THAT(refusal(), HasSubstr("restore it from a copy, or move it "
                                     "away and resume the run"));
  }
  set_bytes(arranged({0, 1, 2, 3}));
  EXPECT_THAT(records(), ElementsAre("one", "two", "three", "four"));
}

// The record is complete and has the right number, but belongs to another log.
TEST_F(WriteAheadLogTest, ARecordOfAnotherLogBreaksTheChain) {
  write({"one", "two", "three"});
  const std::string ours = bytes();
  fs::remove(file());
  forget_syncs();
  write({"ONE", "TWO", "THREE"});
  const std::string mixed = ours.substr(0, WriteAheadLog::kHeaderBytes) +
                            record(ours, 0) + record(bytes(), 1) +
                            record(ours, 2);
  set_bytes(mixed);
  EXPECT_THAT(refusal(), HasSubstr("where record 2 belongs there is another of "
                                   "that number"));
}

TEST_F(WriteAheadLogTest, ALogThatWasCutAtARecordIsRefused) {
  write({"one", "two", "three"});
  const std::string whole = bytes();
  set_bytes(whole.substr(0, whole.size() - record(whole, 2).size()));
  EXPECT_THAT(refusal(), HasSubstr("was cut: it ends with record 2, and record "
                                   "3 was written"));
  set_bytes("");
  EXPECT_THAT(refusal(), HasSubstr("it ends with record 0, and record 3"));
  fs::remove(file().string() + ".lock");
  set_bytes(whole.substr(0, whole.size() - record(whole, 2).size()));
  EXPECT_THAT(records(), ElementsAre("one", "two")) << "as it was asked for";
}

TEST_F(WriteAheadLogTest, AnotherVersionAndAnotherFileAreRefused) {
  write({"first"});
  std::string other = bytes();
  other[8] = 7;
  set_bytes(other);
  EXPECT_THAT(refusal(), HasSubstr("is of version 7, this program reads "
                                   "version 3"));
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

// Nothing is mapped at address 0 of a process, so reading /proc/self/mem fails
// with EIO, as on a broken disk.
TEST_F(WriteAheadLogTest, ALogThatCannotBeReadIsRefusedAndNotCut) {
  fs::create_symlink("/proc/self/mem", file());
  EXPECT_THAT(refusal(), HasSubstr("cannot be read: Input/output error"));
}

TEST_F(WriteAheadLogTest, ANumberThatCannotBeReadIsNotTakenForNone) {
  write({"one", "two"});
  const std::string whole = bytes();
  set_bytes(whole.substr(0, whole.size() - record(whole, 1).size()));
  fs::remove(file().string() + ".lock");
  fs::create_symlink("/proc/self/mem", file().string() + ".lock");
  EXPECT_THAT(refusal(),
              HasSubstr("log.lock cannot be read: Input/output error"));
}

TEST_F(WriteAheadLogTest, AfterAFailedWriteOnlyANewLogIsWritten) {
  write({"one"});
  {
    std::vector<std::string> found;
    const auto log = WriteAheadLog::open(file(), &found);
    {
      const FileSizeLimit limit(fs::file_size(file()) + 25);
      EXPECT_THROW(log->append("a record that is written in part"), Error);
    }
    EXPECT_THROW(log->append("behind it"), Error);
    EXPECT_THROW(log->sync(), Error);
    EXPECT_THAT(refusal(), HasSubstr("belongs to a coordinator"));
    log->replace({"anew"});
    log->append("next");
    log->sync();
  }
  EXPECT_THAT(records(), ElementsAre("anew", "next"));
}

// Syncing the folder fails, because no descriptor is left. At that time the new
// file already has the log's name.
TEST_F(WriteAheadLogTest, ALogThatWasReplacedInPartIsClearedAndWrittenAnew) {
  write({"one"});
  {
    std::vector<std::string> found;
    const auto log = WriteAheadLog::open(file(), &found);
    {
      const DescriptorLimit limit(/*more=*/1);
      EXPECT_THROW(log->replace({"two"}), Error);
    }
    EXPECT_TRUE(log->leads_here());
    log->clear();
    EXPECT_EQ(fs::file_size(file()), 0u);
    log->replace({"three"});
  }
  EXPECT_THAT(records(), ElementsAre("three"));
}

// A coordinator that ends removes its log and the lock file, while the next
// coordinator waits for the lock. The next one then holds the lock of a deleted
// file, and must take a new one.
TEST_F(WriteAheadLogTest, ALockThatIsRemovedBeforeItIsTakenIsTakenAnew) {
  write({"one"});
  const fs::path lock_file = file().string() + ".lock";
  const int ending = ::open(lock_file.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(ending, LOCK_EX | LOCK_NB), 0);
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    fs::remove(file());
    fs::remove(lock_file);
    ::close(ending);
  });
  std::vector<std::string> found;
  const auto log = WriteAheadLog::open(file(), &found);
  end.join();
  EXPECT_THAT(found, IsEmpty());
  EXPECT_THAT(refusal(), HasSubstr("belongs to a coordinator"));
}

TEST_F(WriteAheadLogTest, AFolderThatIsNotThereIsRefused) {
  std::vector<std::string> found;
  EXPECT_THROW(WriteAheadLog::open(folder_ / "no/log", &found), Error);
}

}  // namespace
}  // namespace headroom::coordinator
