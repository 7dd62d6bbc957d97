// An index of files never changes a data set: each result is compared with that
// of a scan without an index.
#include "worker/data/labels/folder_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/worker/data/data_files.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/labels/index_cache.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kImages = 300;

// How often this process has called read(); -1 where the system does not count.
int64_t num_reads() {
  std::ifstream counters("/proc/self/io");
  std::string name;
  int64_t value = 0;
  while (counters >> name >> value) {
    if (name == "syscr:") return value;
  }
  return -1;
}

class FolderIndexFiles : public ::testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;

  // All data sets are written at once, so that the tests wait only once until
  // the files are old.
  static void SetUpTestSuite() {
    const auto* suite =
        ::testing::UnitTest::GetInstance()->current_test_suite();
    for (int i = 0; i < suite->test_to_run_count(); ++i) {
      folders().push_back(std::make_unique<TemporaryFolder>());
      write_data_set(*folders().back(), kImages);
    }
    written_at() = Clock::now();
  }
  static void TearDownTestSuite() { folders().clear(); }

  FolderIndexFiles() : folder_holder_(std::move(folders().back())) {
    folders().pop_back();
  }

  // Waits until all files are so old that the index trusts them.
  static void settle() {
    std::this_thread::sleep_until(written_at() + FolderIndex::kYoung +
                                  std::chrono::milliseconds(100));
  }

  IndexedDataset scan(const fs::path& kept_in) const {
    IndexOptions options;
    options.num_threads = 2;
    options.kept_in = kept_in;
    options.single_cls = single_cls_;
    return index_dataset(config_, Split::kTrain, options);
  }
  // Scans with the index, and compares the result with that of a scan without
  // the index. Returns the notes that only the scan with the index has.
  std::vector<std::string> notes_of_scan() const {
    const IndexedDataset known = scan(kept_);
    const IndexedDataset read = scan("");
    EXPECT_EQ(known.dataset.digest(), read.dataset.digest());
    EXPECT_EQ(known.dataset.num_polygons(), read.dataset.num_polygons());
    EXPECT_EQ(known.undecodable.size(), read.undecodable.size());
    IndexedDataset plain = known;
    plain.report.notes = read.report.notes;
    EXPECT_EQ(plain.report.lines(1000), read.report.lines(1000));
    std::vector<std::string> notes = known.report.notes;
    std::erase_if(notes, [&](const std::string& note) {
      return std::ranges::count(read.report.notes, note) > 0;
    });
    return notes;
  }
  int64_t reads_of_scan() const {
    const int64_t before = num_reads();
    scan(kept_);
    return num_reads() - before;
  }
  // If the system does not count reads, nothing is checked.
  static void expect_few(int64_t reads) {
    if (num_reads() >= 0) {
      EXPECT_LT(reads, 20);
    }
  }

  fs::path image(int number) const {
    return folder_.path() /
           ("images/train/" + std::to_string(100 + number) + ".bmp");
  }
  fs::path labels(int number) const {
    return folder_.path() /
           ("labels/train/" + std::to_string(100 + number) + ".txt");
  }
  fs::path index() const {
    return index_place(kept_, config_, Split::kTrain, {}).file;
  }

  // Writes other bytes of the same length and restores the file's date.
  static void replace_unseen(const fs::path& file, const std::string& bytes) {
    struct stat before {};
    ASSERT_EQ(::stat(file.c_str(), &before), 0);
    ASSERT_EQ(static_cast<size_t>(before.st_size), bytes.size());
    std::ofstream(file, std::ios::binary) << bytes;
    const timespec times[] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
    written_at() = Clock::now();
  }
  static void write(const fs::path& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
    written_at() = Clock::now();
  }

 private:
  static std::vector<std::unique_ptr<TemporaryFolder>>& folders() {
    static std::vector<std::unique_ptr<TemporaryFolder>> unused;
    return unused;
  }
  static Clock::time_point& written_at() {
    static Clock::time_point last;
    return last;
  }
  const std::unique_ptr<TemporaryFolder> folder_holder_;

 protected:
  const TemporaryFolder& folder_ = *folder_holder_;
  const fs::path kept_ = folder_.path() / "kept" / "deep";
  configs::DataConfig config_ =
      data_config(folder_, folder_.path() / "images/train");
  bool single_cls_ = false;
};

TEST_F(FolderIndexFiles, ASecondStartOpensNoImage) {
  settle();
  EXPECT_THAT(notes_of_scan(), IsEmpty());
  EXPECT_THAT(notes_of_scan(), IsEmpty());
  if (num_reads() < 0) GTEST_SKIP() << "this system does not count reads";
  EXPECT_LT(reads_of_scan(), 20);
}

TEST_F(FolderIndexFiles, YoungFilesAreReadAgain) {
  write_data_set(folder_, kImages);
  const IndexedDataset first = scan(kept_);
  if (num_reads() < 0) GTEST_SKIP() << "this system does not count reads";
  EXPECT_GT(reads_of_scan(), kImages);
  std::this_thread::sleep_for(FolderIndex::kYoung +
                              std::chrono::milliseconds(100));
  EXPECT_GT(reads_of_scan(), kImages);
  EXPECT_LT(reads_of_scan(), 20);
  EXPECT_THAT(notes_of_scan(), IsEmpty());
}

TEST_F(FolderIndexFiles, ContentUnderEqualSizeAndDateIsNoticed) {
  write(image(7), encode_bmp(test_picture(24, 32, 1)));
  write(image(8), encode_bmp(test_picture(24, 32, 2)));
  write(labels(9), "0 .5 .5 .2 .2\n");
  settle();
  scan(kept_);
  replace_unseen(image(7), encode_bmp(test_picture(32, 24, 1)));
  EXPECT_THAT(notes_of_scan(),
              ElementsAre("train: images since the last start: 1 changed, "
                          "first " +
                          image(7).string()));
  // Only pixels change. The index does not hold pixels, so it reports that the
  // image was read again.
  replace_unseen(image(8), encode_bmp(test_picture(24, 32, 3)));
  EXPECT_THAT(notes_of_scan(),
              ElementsAre(HasSubstr("1 with another inode or status time, read "
                                    "again, first " +
                                    image(8).string())));
  replace_unseen(labels(9), "1 .5 .5 .3 .3\n");
  EXPECT_THAT(notes_of_scan(),
              ElementsAre(HasSubstr("1 changed, first " + image(9).string())));
}

TEST_F(FolderIndexFiles, NewGoneAndRenamedImagesAreNamed) {
  settle();
  scan(kept_);
  write(folder_.path() / "images/train/050.bmp",
        encode_bmp(test_picture(20, 20, 1)));
  fs::remove(image(250));
  fs::rename(image(3), folder_.path() / "images/train/zzz.bmp");
  EXPECT_THAT(notes_of_scan(),
              ElementsAre("train: images since the last start: 2 new, first " +
                          (folder_.path() / "images/train/050.bmp").string() +
                          "; 2 gone, first " + image(3).string()));
  settle();
  scan(kept_);
  EXPECT_THAT(notes_of_scan(), IsEmpty());
}

TEST_F(FolderIndexFiles, MoreImagesThanABlockHolds) {
  settle();
  scan(kept_);
  const std::string bytes = encode_bmp(test_picture(4, 4, 1));
  const int many = static_cast<int>(FolderIndex::kMostImages) + 500;
  for (int i = 0; i < many; ++i) {  // sorted between the other images
    write(folder_.path() /
              ("images/train/2" + std::to_string(10000 + i) + ".bmp"),
          bytes);
  }
  EXPECT_THAT(notes_of_scan(),
              ElementsAre(HasSubstr(std::to_string(many) + " new")));
  settle();
  scan(kept_);
  EXPECT_THAT(notes_of_scan(), IsEmpty());
  for (int i = 0; i < many; ++i) {
    fs::remove(folder_.path() /
               ("images/train/2" + std::to_string(10000 + i) + ".bmp"));
  }
  EXPECT_THAT(notes_of_scan(),
              ElementsAre(HasSubstr(std::to_string(many) + " gone")));
  EXPECT_THAT(notes_of_scan(), IsEmpty());
}

TEST_F(FolderIndexFiles, LabelsThatChangeComeOrGoAreNoticed) {
  fs::remove(labels(4));
  settle();
  scan(kept_);
  write(labels(2), "2 .5 .5 .4 .4\n2 .5 .5 .1 .1\nnot a box\n");
  EXPECT_THAT(notes_of_scan(),
              ElementsAre(HasSubstr("1 changed, first " + image(2).string())));
  write(labels(4), "0 .5 .5 .2 .2\n");
  EXPECT_THAT(notes_of_scan(),
              ElementsAre(HasSubstr("1 changed, first " + image(4).string())));
  fs::remove(labels(0));
  EXPECT_THAT(notes_of_scan(),
              ElementsAre(HasSubstr("1 changed, first " + image(0).string())));
}

TEST_F(FolderIndexFiles, ARefusedImageIsReadEachTime) {
  const std::string sound = encode_bmp(test_picture(24, 32, 1));
  write(image(5), sound.substr(0, 300));
  settle();
  const IndexedDataset refused = scan(kept_);
  EXPECT_EQ(refused.report.num_faults(), 1)
      << to_string(refused.report.faults.back());
  EXPECT_THAT(to_string(refused.report.faults.at(0)),
              HasSubstr(image(5).string()));
  EXPECT_THAT(notes_of_scan(), IsEmpty());
  write(image(5), sound);
  EXPECT_EQ(scan(kept_).report.images, refused.report.images + 1);
}

TEST_F(FolderIndexFiles, BoxesAreCountedWithTheIndex) {
  settle();
  scan(kept_);
  write(labels(2), "2 .5 .5 .4 .4\n2 .5 .5 .1 .1\n");
  IndexOptions options;
  options.limits.bands = codecs::kAnyBands;
  const BoxCounts read = count_boxes(config_, Split::kTrain, options);
  options.kept_in = kept_;
  const int64_t before = num_reads();
  EXPECT_EQ(count_boxes(config_, Split::kTrain, options).boxes, read.boxes);
  expect_few(num_reads() - before);
  // count_boxes() is no scan, so the next scan must still report the change.
  EXPECT_THAT(notes_of_scan(), ElementsAre(HasSubstr("1 changed")));
}

TEST_F(FolderIndexFiles, AnnotationsBesideImagesAreIndexedToo) {
  write(folder_.path() / "images/train/400.bmp",
        encode_bmp(test_picture(24, 32, 1)));
  const fs::path voc = folder_.path() / "labels/train/400.xml";
  const std::string text =
      "<annotation><object><name>b</name><bndbox><xmin>1</xmin><ymin>2</ymin>"
      "<xmax>9</xmax><ymax>9</ymax></bndbox></object></annotation>";
  write(voc, text);
  settle();
  scan(kept_);
  EXPECT_THAT(notes_of_scan(), IsEmpty());
  expect_few(reads_of_scan());
  write(voc, text.substr(1));
  EXPECT_THAT(notes_of_scan(), ElementsAre(HasSubstr("1 changed")));
}

// The annotation has boxes in pixels. In an image of another size they are
// other fractions.
TEST_F(FolderIndexFiles, AnotherImageHasOtherBoxesOfTheSameAnnotation) {
  const fs::path picture = folder_.path() / "images/train/400.bmp";
  write(picture, encode_bmp(test_picture(24, 32, 1)));
  write(folder_.path() / "labels/train/400.xml",
        "<annotation><object><name>b</name><bndbox><xmin>1</xmin><ymin>2</ymin>"
        "<xmax>9</xmax><ymax>9</ymax></bndbox></object></annotation>");
  settle();
  scan(kept_);
  write(picture, encode_bmp(test_picture(48, 64, 1)));
  EXPECT_THAT(notes_of_scan(), ElementsAre(HasSubstr("1 changed")));
}

TEST_F(FolderIndexFiles, EveryStartReportsTheFaultsOfLabels) {
  write(labels(3), "0 .5 .5 .2 .2\nnot a box\n1 .5 .5 1.5 .2\n0 .5 .5 .2 .2\n");
  write(labels(4), "2 .1 .1 .9 .1 .9 .9\n2 .5 .5 0 .1\n");
  settle();
  for (int start = 0; start < 2; ++start) {
    EXPECT_THAT(notes_of_scan(), IsEmpty());
    EXPECT_EQ(scan(kept_).report.num_faults(), 4);
  }
  expect_few(reads_of_scan());
}

TEST_F(FolderIndexFiles, OtherClassesReadTheLabelsAgainAndAreNoChangeOfFiles) {
  settle();
  scan(kept_);
  const auto expect_one_reading = [&] {
    if (num_reads() >= 0) {
      EXPECT_GT(reads_of_scan(), kImages / 2);  // some images have no labels
    }
    EXPECT_THAT(notes_of_scan(), IsEmpty());
    expect_few(reads_of_scan());
  };
  config_.names.emplace_back("d");
  expect_one_reading();
  single_cls_ = true;
  expect_one_reading();
}

TEST_F(FolderIndexFiles, AForeignIndexIsNotTrusted) {
  settle();
  scan(kept_);
  const std::string sound = read_bytes(index());
  configs::DataConfig other = config_;
  other.file = folder_.path() / "other.yaml";
  IndexOptions options;
  options.kept_in = kept_;
  index_dataset(other, Split::kTrain, options);
  const fs::path others = index_place(kept_, other, Split::kTrain, {}).file;
  ASSERT_NE(others, index());
  fs::copy_file(others, index(), fs::copy_options::overwrite_existing);
  EXPECT_THAT(notes_of_scan(),
              ElementsAre(HasSubstr("of another version or of another data "
                                    "set: files that it lacks are read")));
  EXPECT_EQ(read_bytes(index()), sound);
  write(index(), "");
  EXPECT_THAT(notes_of_scan(), ElementsAre(HasSubstr("is damaged")));
  EXPECT_EQ(read_bytes(index()), sound);
}

TEST_F(FolderIndexFiles, AnIndexOfAnotherUserIsNeitherTrustedNorReplaced) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a file away";
  settle();
  scan(kept_);
  ASSERT_EQ(::chown(index().c_str(), 65534, 65534), 0);
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat(index().c_str(), &before), 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(notes_of_scan(),
                ElementsAre(HasSubstr("belongs to user 65534: files that it "
                                      "lacks are read")));
  }
  ASSERT_EQ(::stat(index().c_str(), &after), 0);
  EXPECT_EQ(after.st_ino, before.st_ino);
  EXPECT_EQ(after.st_uid, 65534u);
}

// Each damage is found, reported in one line, and repaired.
TEST_F(FolderIndexFiles, DamageInTheIndexChangesNothing) {
  settle();
  const IndexedDataset whole = scan(kept_);
  const std::string sound = read_bytes(index());
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    std::string bytes = sound;
    switch (random() % 4) {
      case 0:
        bytes.resize(random() % bytes.size());
        break;
      case 1:
        bytes.erase(random() % bytes.size(), random() % 200 + 1);
        break;
      case 2:
        bytes.insert(random() % bytes.size(), random() % 200 + 1, '\0');
        break;
      default:
        bytes[random() % bytes.size()] ^= static_cast<char>(random() % 255 + 1);
    }
    write(index(), bytes);
    const IndexedDataset found = scan(kept_);
    ASSERT_EQ(found.dataset.digest(), whole.dataset.digest()) << round;
    ASSERT_EQ(found.report.counts, whole.report.counts) << round;
    ASSERT_FALSE(found.report.notes.empty()) << round;
    ASSERT_THAT(found.report.notes[0], HasSubstr(index().string())) << round;
    ASSERT_EQ(read_bytes(index()), sound) << round;
  }
}

TEST_F(FolderIndexFiles, AFolderThatCannotBeWrittenCostsALine) {
  folder_.write("file", "x");
  const IndexedDataset found = scan(folder_.path() / "file" / "kept");
  EXPECT_EQ(found.dataset.digest(), scan("").dataset.digest());
  EXPECT_THAT(found.report.notes,
              ElementsAre(HasSubstr("train: no index is kept (")));
}

TEST_F(FolderIndexFiles, AFullFolderCostsALine) {
  settle();
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{10'000, before.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const IndexedDataset found = scan(kept_);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(found.dataset.digest(), scan("").dataset.digest());
  EXPECT_THAT(found.report.notes,
              ElementsAre(HasSubstr("train: no index is kept (")));
  EXPECT_FALSE(fs::exists(index()));
  EXPECT_THAT(notes_of_scan(), IsEmpty());
  EXPECT_TRUE(fs::exists(index()));
}

TEST_F(FolderIndexFiles, TwoProcessesAtOnceLeaveOneSoundIndex) {
  settle();
  const uint64_t digest = scan("").dataset.digest();
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      bool is_right = true;
      for (int round = 0; round < 20; ++round) {
        // From time to time the index is removed, and all processes write it
        // again.
        if (child == 0 && round % 5 == 0) ::unlink(index().c_str());
        is_right = is_right && scan(kept_).dataset.digest() == digest;
      }
      ::_exit(is_right ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_THAT(notes_of_scan(), IsEmpty());
  expect_few(reads_of_scan());
}

TEST_F(FolderIndexFiles, UnusedIndexesAreRemoved) {
  settle();
  scan(kept_);
  const fs::path folder = index().parent_path();
  const auto path_of = [&folder](char digit, const std::string& suffix) {
    return folder / (std::string(32, digit) + suffix);
  };
  const auto make = [](const fs::path& file, int days) {
    write(file, "x");
    fs::last_write_time(
        file, fs::file_time_type::clock::now() - std::chrono::hours(24 * days));
    return file;
  };
  const fs::path old = make(path_of('a', ""), 91);
  const fs::path its_lock = make(path_of('a', ".lock"), 91);
  const fs::path newer = make(path_of('b', ""), 89);
  const fs::path its_old_lock = make(path_of('b', ".lock"), 91);
  const fs::path foreign = make(folder / "notes.txt", 200);
  const fs::path written = make(path_of('c', ""), 91);
  const int held =
      ::open(path_of('c', ".lock").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  fs::last_write_time(
      index(), fs::file_time_type::clock::now() - std::chrono::hours(24 * 200));
  scan(kept_);
  for (const fs::path& file : {old, its_lock}) {
    EXPECT_FALSE(fs::exists(file)) << file;
  }
  for (const fs::path& file :
       {newer, its_old_lock, foreign, written, index()}) {
    EXPECT_TRUE(fs::exists(file)) << file;
  }
  ::close(held);
}

// A process that removes an index also removes its lock file, while others may
// wait for the lock. The lock must still have only one holder.
TEST(IndexLock, HasOneHolderAlthoughItIsRemoved) {
  const TemporaryFolder folder;
  const fs::path index = folder.path() / "index";
  std::atomic<int> holders = 0, times = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 5000; ++k) {
        const IndexLock lock(index);
        if (!lock.is_held()) continue;
        EXPECT_EQ(holders++, 0);
        ++times;
        std::this_thread::yield();
        --holders;
        fs::remove(index.string() + ".lock");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(times, 0);
}

TEST(FolderIndexPlace, FileSystemsThatTakeTimesFromProgramsAreNotTrusted) {
  for (const int64_t type : {0xEF53, 0x58465342, 0x01021994, 0x6969}) {
    EXPECT_TRUE(keeps_status_times(type)) << std::hex << type;
  }
  // These numbers are FUSE, exFAT, FAT and squashfs. The last check is for SMB.
  for (const int64_t type : {0x65735546, 0x2011BAB0, 0x4D44, 0x73717368}) {
    EXPECT_FALSE(keeps_status_times(type)) << std::hex << type;
  }
  EXPECT_FALSE(keeps_status_times(0xFE534D42));
}

TEST(FolderIndexPlace, IsInTheUsersCache) {
  const std::string home = "/somewhere";
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(index_folder(), "/cache/headroom/folders");
  ::setenv("XDG_CACHE_HOME", "relative",
           1);  // must be ignored by the XDG specification
  ::setenv("HOME", home.c_str(), 1);
  EXPECT_EQ(index_folder(), home + "/.cache/headroom/folders");
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("HOME");
  EXPECT_EQ(index_folder(), "");
}

}  // namespace
}  // namespace headroom::labels
