// The video plugin's interface: libheadroom_video.so, which has all of FFmpeg,
// is loaded at run time (video_plugin.h), so that a machine without FFmpeg has
// everything else.
//
// Pictures are RGB, 8 bits, row after row without gaps.
//
// Errors: nothing is thrown through this interface; a reason is a message.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace headroom::video {

inline constexpr int kVideoApiVersion = 1;

struct VideoFormat {
  int width = 0, height = 0;            // the size as stored
  int quarter_turns = 0;                // clockwise, 0 to 3, until upright
  int rate = 25, rate_denominator = 1;  // pictures a second
  int64_t pictures = 0;                 // the file's own number; 0: it has none
};

class VideoReader {
 public:
  virtual ~VideoReader() = default;
  virtual const VideoFormat& format() const = 0;
  // Decodes the next picture into `rgb`; null: passes it over. False: there is
  // none.
  virtual bool next(uint8_t* rgb) = 0;
  // Once there is none: what was wrong with the file; "": nothing.
  virtual std::string fault() const = 0;
};

class VideoWriter {
 public:
  virtual ~VideoWriter() = default;
  // Both return why it could not be done; "": it is.
  virtual std::string write(const uint8_t* rgb) = 0;
  virtual std::string finish() = 0;  // the file is whole only after it
};

class VideoApi {
 public:
  virtual ~VideoApi() = default;
  // A local file of a known container and codec, whose pictures have at most
  // `max_pixels`. Null: see `reason`.
  virtual std::unique_ptr<VideoReader> open(const std::string& file,
                                            int64_t max_pixels,
                                            std::string& reason) = 0;
  // An MP4 of MPEG-4 pictures; `format.quarter_turns` and `.pictures` are not
  // looked at. A file that is there is replaced.
  virtual std::unique_ptr<VideoWriter> create(const std::string& file,
                                              const VideoFormat& format,
                                              std::string& reason) = 0;
};

// The one function that the plugin exports takes a version; null: it is of
// another one.
inline constexpr const char* kVideoApiFactory = "headroom_video_api";

}  // namespace headroom::video
