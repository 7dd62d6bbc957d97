#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "parallel/base/atomic_file.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/machine/piped_program.h"
#include "worker/video/video.h"

namespace headroom::video {
namespace {

constexpr int kMostSide = 8191;  // MPEG-4 stores sides in 13 bits

class Writer final : public VideoWriter {
 public:
  ~Writer() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  std::string open(const std::string& file, const VideoFormat& format);
  std::string write(const uint8_t* rgb) override;
  std::string finish() override;

 private:
  int descriptor_ = -1;  // the file that ffmpeg writes
  size_t bytes_ = 0;     // bytes of one picture
  int64_t pictures_ = 0;
  std::unique_ptr<PipedProgram> program_;
};

std::string Writer::open(const std::string& file, const VideoFormat& format) {
  if (format.width > kMostSide || format.height > kMostSide) {
    return cat(format.width, " x ", format.height,
               " pixels, but pictures in an MPEG-4 video have at most ",
               kMostSide, " a side");
  }
  // ffmpeg opens the file a second time, by its name.
  descriptor_ = open_anew(file, O_WRONLY, 0666);
  if (descriptor_ < 0) return file_fault();
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    return "it is no regular file";
  }
  bytes_ = format.picture_bytes();
  const std::vector<std::string> words = {
      "ffmpeg", "-v", "repeat+level+error", "-nostdin",
      // Input: pictures from the pipe.
      "-protocol_whitelist", "pipe", "-f", "rawvideo", "-pixel_format", "rgb24",
      "-video_size", cat(format.width, "x", format.height), "-framerate",
      cat(format.rate, "/", format.rate_denominator), "-i", "pipe:0",
      // Output. At quality 3 (of 1 to 31) no loss is visible.
      "-vf", "scale=flags=bilinear+accurate_rnd+full_chroma_int,format=yuv420p",
      "-c:v", "mpeg4", "-q:v", "3", "-g", "25", "-bf", "0", "-threads", "1",
      "-f", "mp4", "-y", "file:" + file};
  program_ = std::make_unique<PipedProgram>(words, ReadOptions{}.patience);
  return "";
}

std::string Writer::write(const uint8_t* rgb) {
  if (program_->write(rgb, bytes_)) {
    ++pictures_;
    return "";
  }
  const std::string reason = finish();
  return cat("after ", counted(pictures_, "picture"), " ",
             reason.empty() ? "ffmpeg takes no more" : reason);
}

std::string Writer::finish() {
  const std::string reason = program_->finish();
  if (!reason.empty()) return reason;
  // Some versions report success although the last bytes were not written.
  if (program_->error_lines() > 0) return program_->first_error();
  return ::fsync(descriptor_) == 0 ? "" : std::strerror(errno);
}

}  // namespace

std::unique_ptr<VideoWriter> create_video(const std::string& file,
                                          const VideoFormat& format,
                                          std::string& reason) {
  auto writer = std::make_unique<Writer>();
  reason = writer->open(file, format);
  if (!reason.empty()) return nullptr;
  return writer;
}

}  // namespace headroom::video
