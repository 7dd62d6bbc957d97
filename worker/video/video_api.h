// The interface of the video plugin. libheadroom_video.so contains all use of
// FFmpeg and is loaded at run time (video_plugin.h), so that everything else
// works on a machine without FFmpeg.
//
// Pictures are RGB, 8 bits, row after row without gaps.
//
// Errors: no exception passes through this interface; messages are returned.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace headroom::video {

inline constexpr int kVideoApiVersion = 1;

struct VideoFormat {
  int width = 0, height = 0;            // the size as stored
  int quarter_turns = 0;                // clockwise, 0 to 3, until upright
  int rate = 25, rate_denominator = 1;  // pictures per second
  int64_t pictures = 0;                 // as the file states; 0 if it does not
};

class VideoReader {
 public:
  virtual ~VideoReader() = default;
  virtual const VideoFormat& format() const = 0;
  // Decodes the next picture into `rgb`; skips it if `rgb` is null. Returns
  // false at the end.
  virtual bool next(uint8_t* rgb) = 0;
  // After the end: the file's fault; "" if there was none.
  virtual std::string fault() const = 0;
};

class VideoWriter {
 public:
  virtual ~VideoWriter() = default;
  // Both return why they failed; "" on success.
  virtual std::string write(const uint8_t* rgb) = 0;
  virtual std::string finish() = 0;  // completes the file
};

class VideoApi {
 public:
  virtual ~VideoApi() = default;
  // Opens a local file of a supported container and codec, with pictures of at
  // most `max_pixels`. Returns null and sets `reason` on failure.
  virtual std::unique_ptr<VideoReader> open(const std::string& file,
                                            int64_t max_pixels,
                                            std::string& reason) = 0;
  // Creates an MP4 of MPEG-4 pictures, replacing an existing file.
  // `format.quarter_turns` and `.pictures` are ignored.
  virtual std::unique_ptr<VideoWriter> create(const std::string& file,
                                              const VideoFormat& format,
                                              std::string& reason) = 0;
};

// The plugin's only exported function. It takes a version, and returns null for
// other versions than its own.
inline constexpr const char* kVideoApiFactory = "headroom_video_api";

}  // namespace headroom::video
