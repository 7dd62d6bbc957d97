// What to look at: an image, a folder (searched recursively), a pattern with *
// or ?, or a .txt list of images.
//
// Errors: Error (exit 4): nothing there; a video or an address, which are not
// read here, with what to do instead.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom {

struct ImageSources {
  std::vector<std::filesystem::path> images;  // absolute, sorted, each once
  std::vector<std::string> left_out;          // "FILE: why", of those found
};

ImageSources find_images(const std::string& source);

}  // namespace headroom
