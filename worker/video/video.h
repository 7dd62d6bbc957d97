// Reads and writes videos through FFmpeg's programs ffprobe and ffmpeg.
//
// Pictures are RGB, 8 bits, row after row without gaps. Only regular files on
// this machine are read and written. A file name is never interpreted as an
// option or an address, and files that list other files are refused.
//
// Errors: nothing is thrown; the reason is returned as a sentence.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace headroom::video {

struct VideoFormat {
  int width = 0, height = 0;                // size of a picture turned upright
  int64_t rate = 25, rate_denominator = 1;  // pictures per second
  int64_t pictures = 0;  // as stated in the file; 0 if unknown

  size_t picture_bytes() const {
    constexpr size_t kBytesOfRgb = 3;
    return static_cast<size_t>(width) * static_cast<size_t>(height) *
           kBytesOfRgb;
  }
};

struct ReadOptions {
  // The limit for one picture. Files with larger pictures are refused.
  int64_t max_pixels = 0;
  // With stride n, pictures 1, n+1, 2n+1, … are returned. The other pictures
  // are decoded too, because later pictures refer to them.
  int64_t stride = 1;
  // FFmpeg is ended if it outputs nothing for this time. A longer time
  // helps only if the disk is very slow.
  std::chrono::seconds patience{60};
};

class VideoReader {
 public:
  virtual ~VideoReader() = default;
  virtual const VideoFormat& format() const = 0;
  // Reads the next picture into `rgb`. Returns false at the end.
  virtual bool next(uint8_t* rgb) = 0;
  // A description of the errors in the file, "" if there were none. Call it
  // after next() has returned false.
  virtual std::string fault() const = 0;
};

class VideoWriter {
 public:
  virtual ~VideoWriter() = default;
  // Both functions return the reason of a failure, "" on success.
  virtual std::string write(const uint8_t* rgb) = 0;
  virtual std::string finish() = 0;  // completes the file
};

// Returns why FFmpeg's programs cannot be used, "" if they can.
std::string check_programs();
inline constexpr const char* kInstallPrograms =
    "install FFmpeg, for example with apt-get install ffmpeg";

// Opens a file of a supported container and codec; its name does not matter.
// The largest video stream is read. A damaged picture is used as the decoder
// repairs it. A truncated file ends with its last picture, and fault() reports
// that; only MPEG streams (TS and PS) that are cut between two pictures cannot
// be distinguished from whole ones. Returns nullptr and sets `reason` on
// failure.
std::unique_ptr<VideoReader> open_video(const std::string& file,
                                        const ReadOptions& options,
                                        std::string& reason);

// Creates an MP4 of MPEG-4 pictures (mp4v, as YOLOv5 writes them) without
// sound, replacing an existing file. `format.pictures` is ignored. Returns
// nullptr and sets `reason` on failure.
std::unique_ptr<VideoWriter> create_video(const std::string& file,
                                          const VideoFormat& format,
                                          std::string& reason);

}  // namespace headroom::video
