// Videos that are written can be read, files that must not be read are refused,
// and damaged files give their intact pictures.
#include "worker/video/video.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <opencv2/core.hpp>
#include <tuple>

#include "parallel/base/text.h"
#include "parallel/machine/piped_program.h"
#include "tests/support/file_size_limit.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/video/clips.h"

namespace headroom::video {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kManyPixels = 1 << 20;

class Video : public ::testing::Test {
 protected:
  void SetUp() override {
    static const std::string lack = check_programs();
    if (!lack.empty()) GTEST_SKIP() << lack;
  }

  // An MP4 of clip_picture.
  fs::path written(int height, int width, int pictures) {
    const fs::path file = folder_.path() / "made.mp4";
    VideoFormat format;
    format.width = width;
    format.height = height;
    format.rate = 10;
    std::string reason;
    const auto writer = create_video(file, format, reason);
    EXPECT_TRUE(writer) << reason;
    for (int i = 1; i <= pictures; ++i) {
      EXPECT_EQ(writer->write(clip_picture(height, width, i).data), "");
    }
    EXPECT_EQ(writer->finish(), "");
    return file;
  }
  // A file that ffmpeg makes with these arguments.
  fs::path made_by_ffmpeg(const std::string& name,
                          const std::vector<std::string>& arguments) {
    const fs::path file = folder_.path() / name;
    std::vector<std::string> words = {"ffmpeg", "-v", "error", "-nostdin"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    words.insert(words.end(), {"-y", file});
    PipedProgram program(words, std::chrono::seconds(20));
    EXPECT_EQ(program.finish(), "");
    return file;
  }
  std::unique_ptr<VideoReader> open(const fs::path& file,
                                    const ReadOptions& options) {
    auto reader = open_video(file, options, reason_);
    EXPECT_EQ(reader == nullptr, !reason_.empty());
    return reader;
  }
  std::unique_ptr<VideoReader> open(const fs::path& file,
                                    int64_t max_pixels = kManyPixels) {
    return open(file, ReadOptions{.max_pixels = max_pixels});
  }
  // Returns the reason why the file is not read.
  std::string refusal(const fs::path& file, int64_t max_pixels = kManyPixels) {
    return open(file, max_pixels) ? "read" : reason_;
  }
  std::string refusal_of(const std::string& bytes) {
    return refusal(folder_.write("clip.mp4", bytes));
  }

  TemporaryFolder folder_;
  std::string reason_;
};

double mean_difference(const cv::Mat& a, const cv::Mat& b) {
  return cv::norm(a, b, cv::NORM_L1) /
         static_cast<double>(a.total() * a.elemSize());
}

// Compares all pictures with clip_picture; returns their number.
int pictures_of(VideoReader& reader, double most_difference) {
  const VideoFormat& format = reader.format();
  cv::Mat picture(format.height, format.width, CV_8UC3);
  int number = 0;
  while (reader.next(picture.data)) {
    ++number;
    EXPECT_LT(mean_difference(
                  picture, clip_picture(format.height, format.width, number)),
              most_difference)
        << number;
  }
  return number;
}

TEST_F(Video, WrittenVideosAreReadBack) {
  for (const auto& [height, width] :
       std::vector<std::pair<int, int>>{{48, 64}, {47, 63}, {33, 200}}) {
    SCOPED_TRACE(std::to_string(height) + " x " + std::to_string(width));
    const auto reader = open(written(height, width, 20));
    ASSERT_TRUE(reader) << reason_;
    EXPECT_EQ(reader->format().height, height);
    EXPECT_EQ(reader->format().width, width);
    EXPECT_EQ(reader->format().rate, 10);
    EXPECT_EQ(reader->format().rate_denominator, 1);
    EXPECT_EQ(reader->format().pictures, 20);
    EXPECT_EQ(pictures_of(*reader, 4), 20);
    EXPECT_EQ(reader->fault(), "");
  }
}

TEST_F(Video, AStrideLeavesPicturesOut) {
  const auto reader =
      open(written(48, 64, 20), {.max_pixels = kManyPixels, .stride = 6});
  ASSERT_TRUE(reader) << reason_;
  cv::Mat picture(48, 64, CV_8UC3);
  for (const int number : {1, 7, 13, 19}) {
    ASSERT_TRUE(reader->next(picture.data));
    EXPECT_LT(mean_difference(picture, clip_picture(48, 64, number)), 4);
  }
  EXPECT_FALSE(reader->next(picture.data));
  EXPECT_EQ(reader->fault(), "");
}

// The file has two streams, one after the other, as some recorders write them.
TEST_F(Video, APictureOfAnotherSizeEndsTheVideo) {
  const auto stream = [&](int height, int width) {
    return read_bytes(made_by_ffmpeg(
        "one.ts",
        {"-f", "lavfi", "-i",
         cat("testsrc=size=", width, "x", height, ":rate=25:duration=0.4"),
         "-c:v", "mpeg2video", "-bf", "0"}));
  };
  for (const auto& [height, width] :
       std::vector<std::pair<int, int>>{{48, 80}, {32, 64}, {64, 48}}) {
    const auto reader =
        open(folder_.write("two.ts", stream(48, 64) + stream(height, width)));
    ASSERT_TRUE(reader) << reason_;
    cv::Mat picture(48, 64, CV_8UC3);
    int count = 0;
    while (reader->next(picture.data)) ++count;
    EXPECT_GE(count, 9);
    EXPECT_LE(count, 10);
    EXPECT_THAT(
        reader->fault(),
        AllOf(StartsWith(cat("after ", count, " pictures ffmpeg failed")),
              HasSubstr("all_pictures_have_one_size")));
  }
}

TEST_F(Video, OtherContainersAndCodecs) {
  const auto reader = open(folder_.write("clip.bin", avi_clip(48, 64, 12)));
  ASSERT_TRUE(reader) << reason_;
  EXPECT_EQ(reader->format().pictures, 12);
  EXPECT_EQ(pictures_of(*reader, 4), 12);
  EXPECT_EQ(reader->fault(), "");
}

// Arguments of ffmpeg for a film of 10 pictures of 64 x 48, for two streams
// that are no film, and for sound.
const std::vector<std::string> kFilm = {
    "-f", "lavfi", "-i", "testsrc=size=64x48:rate=10:duration=1"};
const std::vector<std::string> kSmallStream = {
    "-f", "lavfi", "-i", "testsrc=size=16x16:rate=10:duration=1"};
const std::vector<std::string> kPoster = {
    "-f", "lavfi", "-i", "testsrc=size=200x200:rate=1:duration=1"};
const std::vector<std::string> kSound = {"-f", "lavfi", "-i",
                                         "sine=duration=1"};

std::vector<std::string> all_of(
    const std::vector<std::vector<std::string>>& lists) {
  std::vector<std::string> all;
  for (const auto& list : lists)
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

TEST_F(Video, TheLargestStreamOfSeveralPicturesIsRead) {
  const std::vector<std::vector<std::string>> cases = {
      all_of({kSmallStream, kFilm, {"-map", "0", "-map", "1", "-c", "mjpeg"}}),
      all_of({kFilm, kSmallStream, {"-map", "0", "-map", "1", "-c", "mjpeg"}}),
      all_of({kPoster, kFilm, {"-map", "0", "-map", "1", "-c", "mjpeg"}}),
      all_of({kPoster,
              kFilm,
              {"-map", "0", "-map", "1", "-c:v:0", "png", "-c:v:1", "mpeg4",
               "-disposition:v:0", "attached_pic"}})};
  for (const auto& arguments : cases) {
    const auto reader = open(made_by_ffmpeg("streams.mp4", arguments));
    ASSERT_TRUE(reader) << reason_;
    EXPECT_EQ(reader->format().width, 64);
    EXPECT_EQ(reader->format().height, 48);
    EXPECT_EQ(reader->format().pictures, 10);
    cv::Mat picture(48, 64, CV_8UC3);
    int count = 0;
    while (reader->next(picture.data)) ++count;
    EXPECT_EQ(count, 10);
    EXPECT_EQ(reader->fault(), "");
  }
  EXPECT_EQ(refusal(made_by_ffmpeg(
                "cover.mp4", all_of({kPoster,
                                     kSound,
                                     {"-map", "0", "-map", "1", "-c:v", "mjpeg",
                                      "-disposition:v", "attached_pic"}}))),
            "there is no video in it");
}

TEST_F(Video, AVideoWithSoundIsRead) {
  for (const std::string sound : {"pcm_s16le", "aac", "ac3"}) {
    SCOPED_TRACE(sound);
    const auto reader = open(made_by_ffmpeg(
        "sound.mov",
        all_of({kSound, kFilm, {"-c:v", "mpeg4", "-c:a", sound}})));
    ASSERT_TRUE(reader) << reason_;
    cv::Mat picture(48, 64, CV_8UC3);
    int count = 0;
    while (reader->next(picture.data)) ++count;
    EXPECT_EQ(count, 10);
    EXPECT_EQ(reader->fault(), "");
  }
}

// A decoder has another name than the codec that it decodes.
TEST_F(Video, OnlyListedDecodersOpenVideos) {
  EXPECT_EQ(
      refusal(made_by_ffmpeg("clip.avi", all_of({kFilm, {"-c:v", "msmpeg4"}}))),
      "read");
  EXPECT_THAT(
      refusal(made_by_ffmpeg("clip.mkv", all_of({kFilm, {"-c:v", "ffv1"}}))),
      AllOf(HasSubstr("Codec (ffv1) not on whitelist"),
            HasSubstr("convert it, for example to H.264")));
}

// An MP4 that starts within a group of pictures has the group's first pictures
// too, and a list that hides them.
TEST_F(Video, HiddenPicturesAreNotMissing) {
  const fs::path whole = written(48, 64, 20);
  const auto reader = open(made_by_ffmpeg(
      "later.mp4", {"-ss", "1", "-i", whole.string(), "-c", "copy"}));
  ASSERT_TRUE(reader) << reason_;
  EXPECT_EQ(reader->format().pictures, 10);
  cv::Mat picture(48, 64, CV_8UC3);
  int count = 0;
  while (reader->next(picture.data)) ++count;
  EXPECT_EQ(count, 10);
  EXPECT_EQ(reader->fault(), "");
}

TEST_F(Video, ACutBetweenTwoPicturesIsReported) {
  const auto fault_of = [&](const std::string& name, const std::string& bytes) {
    const auto reader = open(folder_.write(name, bytes));
    if (!reader) return reason_;
    cv::Mat picture(48, 64, CV_8UC3);
    while (reader->next(picture.data)) {
    }
    return reader->fault();
  };
  const std::string avi = avi_clip(48, 64, 30);
  EXPECT_EQ(
      fault_of("cut.avi", avi.substr(0, avi.rfind("00dc", avi.find("idx1")))),
      "it ends after 29 of 30 pictures");
  // In this file the index comes first.
  const std::string mov = read_bytes(made_by_ffmpeg(
      "whole.mov",
      all_of({kFilm, {"-c:v", "mjpeg", "-movflags", "faststart"}})));
  EXPECT_EQ(fault_of("cut.mov", mov.substr(0, mov.rfind("\xff\xd8\xff"))),
            "it ends after 9 of 10 pictures");
  const std::string gif = read_bytes(made_by_ffmpeg("whole.gif", kFilm));
  EXPECT_EQ(fault_of("cut.gif", gif), "");
  EXPECT_EQ(fault_of("cut.gif", gif.substr(0, gif.size() - 1)),
            "it lacks the end mark of a GIF, and ends after 10 pictures");
  const std::string mkv = read_bytes(
      made_by_ffmpeg("whole.mkv", all_of({kFilm, {"-c:v", "mjpeg"}})));
  EXPECT_THAT(fault_of("cut.mkv", mkv.substr(0, mkv.size() / 2)),
              AllOf(StartsWith("ffmpeg reports 1 error, the first: "),
                    HasSubstr(" pictures could be decoded")));
}

TEST_F(Video, ATruncatedFileGivesThePicturesItHas) {
  const std::string whole = avi_clip(48, 64, 30);
  const auto reader =
      open(folder_.write("cut.avi", whole.substr(0, whole.size() / 2)));
  ASSERT_TRUE(reader) << reason_;
  cv::Mat picture(48, 64, CV_8UC3);
  int count = 0;
  while (reader->next(picture.data)) ++count;
  EXPECT_GE(count, 12);
  EXPECT_LE(count, 16);
  EXPECT_THAT(reader->fault(),
              HasSubstr(std::to_string(count) + " of 30 pictures"));
}

TEST_F(Video, DamageIsCountedAndTheRestIsRead) {
  std::string bytes = avi_clip(48, 64, 30);
  const size_t from = bytes.find("movi") + 3000;
  for (size_t i = 0; i < 600; ++i) bytes[from + i] = '\x5a';
  const auto reader = open(folder_.write("damaged.avi", bytes));
  ASSERT_TRUE(reader) << reason_;
  cv::Mat picture(48, 64, CV_8UC3);
  int count = 0;
  while (reader->next(picture.data)) ++count;
  EXPECT_GE(count, 20);
  EXPECT_THAT(reader->fault(),
              AllOf(StartsWith("ffmpeg reports "),
                    HasSubstr(" errors, the first: [mjpeg] ")));
}

// Reading any damaged file comes to an end, and never gives a picture above the
// allowed size. Each case starts two programs, whose own faults cannot reach
// this process, so a few cases are enough.
TEST_F(Video, FlippedBytesEnd) {
  const std::string mp4 = read_bytes(written(48, 64, 8));
  const std::string avi = avi_clip(48, 64, 8);
  uint64_t state = 1;
  const auto random = [&state](size_t below) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<size_t>(state >> 33) % below;
  };
  int opened = 0;
  for (int round = 0; round < 24; ++round) {
    std::string bytes = round % 2 == 0 ? mp4 : avi;
    for (size_t flips = 1 + random(12); flips > 0; --flips) {
      bytes[random(bytes.size())] = static_cast<char>(random(256));
    }
    const auto reader = open(folder_.write("flipped", bytes), 64 * 64);
    if (!reader) continue;
    ++opened;
    const VideoFormat& format = reader->format();
    ASSERT_LE(format.width * format.height, 64 * 64);
    cv::Mat picture(format.height, format.width, CV_8UC3);
    int count = 0;
    while (reader->next(picture.data)) ASSERT_LT(++count, 10'000);
  }
  EXPECT_GT(opened, 8);
}

// An MP4 has its index at the end, so that half of the file has none.
TEST_F(Video, UnreadableVideosListTheSupportedFormats) {
  const fs::path file = written(48, 64, 20);
  fs::resize_file(file, fs::file_size(file) / 2);
  EXPECT_THAT(refusal(file), AllOf(StartsWith("it cannot be opened ("),
                                   HasSubstr("read are MP4, MOV, MKV")));
  EXPECT_THAT(refusal_of(""), StartsWith("it cannot be opened ("));
  EXPECT_THAT(refusal_of("no video"), StartsWith("it cannot be opened ("));
}

// Lists of other files are recognised by their content, under any name.
TEST_F(Video, ListsOfOtherFilesAreNotFollowed) {
  const fs::path clip = written(48, 64, 5);
  for (const std::string& text :
       {"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n" + clip.string() +
            "\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile '" + clip.string() + "'\n",
        std::string("v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 "
                    "127.0.0.1\nm=video 5004 RTP/AVP 96\n")}) {
    EXPECT_THAT(refusal_of(text), StartsWith("it cannot be opened (")) << text;
  }
}

TEST_F(Video, SizesAreCheckedBeforeAnythingIsDecoded) {
  EXPECT_EQ(refusal(written(48, 64, 3), 48 * 64 - 1),
            "pictures of 64 x 48 pixels, of which at most 3071 are read");
  EXPECT_EQ(refusal(written(48, 64, 3), 48 * 64), "read");
  // The container claims 30000 x 30000, but its pictures have 64 x 48.
  std::string bytes = avi_clip(48, 64, 3);
  const std::string size("\x40\0\0\0\x30\0\0\0", 8);
  const std::string large("\x30\x75\0\0\x30\x75\0\0", 8);
  for (size_t at = bytes.find(size); at != std::string::npos;
       at = bytes.find(size, at + 1)) {
    bytes.replace(at, 8, large);
  }
  EXPECT_EQ(refusal(folder_.write("clip.avi", bytes), 48 * 64), "read");
}

TEST_F(Video, OnlyRegularFiles) {
  const fs::path pipe = folder_.path() / "pipe.mp4";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(refusal(pipe), "it is no regular file");
  EXPECT_EQ(refusal(folder_.path()), "it is no regular file");
  EXPECT_EQ(refusal(folder_.path() / "gone.mp4"), "No such file or directory");
  EXPECT_EQ(refusal("http://127.0.0.1/clip.mp4"), "No such file or directory");
}

// Telephones store pictures rotated; the matrix in the track's header gives the
// rotation.
TEST_F(Video, PicturesAreTurnedUpright) {
  const std::string bytes = read_bytes(written(48, 64, 3));
  const size_t matrix = bytes.find("tkhd") + 4 + 40;
  ASSERT_EQ(bytes.substr(matrix, 4), std::string("\0\1\0\0", 4));
  const std::string zero(4, '\0'), one("\0\1\0\0", 4),
      minus_one("\xff\xff\0\0", 4);
  const cv::Mat stored = clip_picture(48, 64, 1);
  const auto expect = [&](const std::string& rotation, const cv::Mat& upright) {
    std::string turned = bytes;
    turned.replace(matrix, rotation.size(), rotation);
    const auto reader = open(folder_.write("turned.mp4", turned));
    ASSERT_TRUE(reader) << reason_;
    ASSERT_EQ(reader->format().width, upright.cols);
    ASSERT_EQ(reader->format().height, upright.rows);
    cv::Mat picture(upright.rows, upright.cols, CV_8UC3);
    ASSERT_TRUE(reader->next(picture.data));
    EXPECT_LT(mean_difference(picture, upright), 4);
  };
  expect(one + zero + zero + zero + one, stored);
  cv::Mat upright;
  cv::rotate(stored, upright, cv::ROTATE_90_CLOCKWISE);
  expect(zero + one + zero + minus_one + zero, upright);
  cv::rotate(stored, upright, cv::ROTATE_180);
  expect(minus_one + zero + zero + zero + minus_one, upright);
  cv::rotate(stored, upright, cv::ROTATE_90_COUNTERCLOCKWISE);
  expect(zero + minus_one + zero + one + zero, upright);
}

TEST_F(Video, AFullDiskIsReported) {
  VideoFormat format;
  format.width = format.height = 256;
  std::string reason, said;
  const FileSizeLimit limit(20'000);
  const auto writer = create_video(folder_.path() / "full.mp4", format, reason);
  ASSERT_TRUE(writer) << reason;
  for (int i = 0; said.empty() && i < 500; ++i) {
    said = writer->write(test_picture(256, 256, static_cast<uint64_t>(i)).data);
  }
  if (said.empty()) said = writer->finish();
  EXPECT_THAT(said, HasSubstr("File too large"));
}

TEST_F(Video, SizesThatMpeg4CannotHoldAreRefused) {
  VideoFormat format;
  format.width = 8192;
  format.height = 64;
  std::string reason;
  EXPECT_FALSE(create_video(folder_.path() / "wide.mp4", format, reason));
  EXPECT_THAT(reason, HasSubstr("8192 x 64 pixels, but"));
  EXPECT_FALSE(fs::exists(folder_.path() / "wide.mp4"));
}

int64_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6));
  }
  return 0;
}

TEST_F(Video, MemoryDoesNotGrowWithTheLength) {
  const auto grown = [&](int pictures) {
    const auto reader = open(written(240, 320, pictures));
    EXPECT_TRUE(reader) << reason_;
    cv::Mat picture(240, 320, CV_8UC3);
    EXPECT_TRUE(reader->next(picture.data));
    const int64_t before = resident_kib();
    while (reader->next(picture.data)) {
    }
    return resident_kib() - before;
  };
  grown(20);  // allocates buffers that are kept
  EXPECT_LT(grown(600), 600 * 240 * 320 * 3 / 1024 / 50)
      << "a fiftieth of the pictures";
}

// Scripts replace the programs of FFmpeg; the script ffprobe calls the real
// one.
class OddFfmpeg : public Video {
 protected:
  void place(const std::string& name, const std::string& script) {
    fs::permissions(folder_.write(name, "#!/bin/sh\n" + script),
                    fs::perms::owner_all);
  }
  // The fault of a video of 5 pictures when ffmpeg is this script.
  std::string fault_with(const std::string& script) {
    const fs::path file = written(48, 64, 5);
    place("ffmpeg", script);
    place("ffprobe",
          cat("PATH='", std::getenv("PATH"), "'\nexec ffprobe \"$@\""));
    const ProgramFolder programs(folder_.path());
    const auto reader = open(
        file, {.max_pixels = kManyPixels, .patience = std::chrono::seconds(1)});
    if (!reader) return "not opened: " + reason_;
    cv::Mat picture(48, 64, CV_8UC3);
    while (reader->next(picture.data)) {
    }
    return reader->fault();
  }
};

TEST_F(OddFfmpeg, AFailureIsReportedWithThePictureAndTheFirstLine) {
  EXPECT_EQ(fault_with("/usr/bin/head -c 20000 /dev/zero\n"
                       "echo '[x @ 0x1] no more' >&2; echo failed >&2; exit 3"),
            "after 2 pictures ffmpeg failed with code 3: [x] no more");
}

TEST_F(OddFfmpeg, ASignalIsReported) {
  EXPECT_EQ(fault_with("kill -9 $$"),
            "after 0 pictures ffmpeg was ended by signal 9");
}

TEST_F(OddFfmpeg, AStallIsEndedAndReported) {
  EXPECT_EQ(fault_with("/usr/bin/head -c 9216 /dev/zero\nexec /bin/sleep 60"),
            "after 1 picture ffmpeg did nothing for 1 s and was ended");
}

TEST_F(OddFfmpeg, AProgramThatDoesNotEndIsEnded) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(fault_with("trap '' TERM\nexec <&- >&-\n"
                       "while :; do /bin/sleep 60; done"),
            "after 0 pictures ffmpeg did not end within 1 s and was ended");
  // A process that the program started holds the pipe and standard error.
  EXPECT_EQ(fault_with("/bin/sleep 60 &\nexit 0"),
            "after 0 pictures ffmpeg did nothing for 1 s and was ended");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(OddFfmpeg, OnlyLinesThatAreMarkedAsErrorsAreDamage) {
  const std::string warnings =
      "/usr/bin/head -c 46080 /dev/zero\necho 'libEGL warning: no screen' >&2\n"
      "echo '[h264 @ 0x1] [warning] odd' >&2\n";
  EXPECT_EQ(fault_with(warnings), "");
  EXPECT_EQ(fault_with(warnings + "echo '[h264 @ 0x1] [error] bad' >&2"),
            "ffmpeg reports 1 error, the first: [h264] bad; 5 pictures could "
            "be decoded");
}

TEST_F(OddFfmpeg, AWarningIsNoFailureToWrite) {
  place("ffmpeg", "/bin/cat >/dev/null\necho 'libEGL warning: no screen' >&2");
  const ProgramFolder programs(folder_.path());
  VideoFormat format;
  format.width = format.height = 64;
  std::string reason;
  const auto writer = create_video(folder_.path() / "made.mp4", format, reason);
  ASSERT_TRUE(writer) << reason;
  EXPECT_EQ(writer->write(test_picture(64, 64, 1).data), "");
  EXPECT_EQ(writer->finish(), "");
}

TEST_F(OddFfmpeg, AFailureToWriteIsReported) {
  place("ffmpeg", "echo no disk >&2\nexit 1");
  const ProgramFolder programs(folder_.path());
  VideoFormat format;
  format.width = format.height = 256;
  std::string reason, said;
  const auto writer = create_video(folder_.path() / "made.mp4", format, reason);
  ASSERT_TRUE(writer) << reason;
  const cv::Mat picture = test_picture(256, 256, 1);
  for (int i = 0; said.empty() && i < 100; ++i) {
    said = writer->write(picture.data);
  }
  EXPECT_THAT(said, AllOf(StartsWith("after "),
                          HasSubstr("ffmpeg failed with code 1: no disk")));
}

TEST_F(OddFfmpeg, AMissingProgramIsNamed) {
  const fs::path file = folder_.write("a.avi", avi_clip(48, 64, 2));
  const ProgramFolder none(folder_.path());
  EXPECT_EQ(check_programs(),
            "ffmpeg cannot be started: No such file or directory");
  EXPECT_EQ(refusal(file),
            "ffprobe cannot be started: No such file or directory");
}

// The launcher of a bundle puts our libraries first in the library path. FFmpeg
// needs its own, so it gets the path from before the launcher.
TEST(PipedPrograms, HaveTheLibraryPathFromBeforeTheLauncher) {
  setenv("LD_LIBRARY_PATH", "/ours", 1);
  const auto path_of_a_program = [] {
    PipedProgram program({"sh", "-c", "printf %s \"$LD_LIBRARY_PATH\""},
                         std::chrono::seconds(10));
    std::string text(100, '\0');
    text.resize(
        program.read(reinterpret_cast<uint8_t*>(text.data()), text.size()));
    return text + program.finish();
  };
  EXPECT_EQ(path_of_a_program(), "/ours");
  for (const std::string before : {"/theirs", ""}) {
    setenv("HEADROOM_FORMER_LIBRARY_PATH", before.c_str(), 1);
    EXPECT_EQ(path_of_a_program(), before);
  }
  unsetenv("HEADROOM_FORMER_LIBRARY_PATH");
  unsetenv("LD_LIBRARY_PATH");
}

TEST(PipedPrograms, AreWaitedForAndNotWhatTheyLeaveBehind) {
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string left : {"sleep 30", "yes >&2"}) {
    PipedProgram program(
        {"sh", "-c", left + " </dev/null >/dev/null & echo cause >&2; exit 3"},
        std::chrono::seconds(10));
    EXPECT_THAT(program.finish(), HasSubstr("sh failed with code 3: "));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(PipedPrograms, AreEndedIfTheyGoOnAfterTheEndOfTheirInput) {
  PipedProgram program({"sleep", "30"}, std::chrono::seconds(1));
  EXPECT_EQ(program.finish(), "sleep did not end within 1 s and was ended");
}

}  // namespace
}  // namespace headroom::video
