// "640" or "480 640" on a command line: height and width in pixels.
//
// Errors: Error (exit 2) that shows how to write it.
#pragma once

#include <cstdint>
#include <string>

namespace headroom::tools {

struct PixelSize {
  int64_t height = 0, width = 0;
};

PixelSize read_image_size(const std::string& flag, const std::string& text);

}  // namespace headroom::tools
