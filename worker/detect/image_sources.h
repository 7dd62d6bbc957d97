// What to look at: an image, a video, a folder (searched recursively for
// images, and itself for videos), a pattern with * or ?, or a .txt list of
// images.
//
// Errors: Error (exit 4): nothing there; an address, a camera or a list of
// streams, which are not read here, with what to do instead.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom::detect {

struct ImageSources {
  // Absolute, sorted, each once.
  std::vector<std::filesystem::path> images, videos;
  std::vector<std::string> left_out;  // "FILE: why", of those found
};

ImageSources find_images(const std::string& source);

// Ends a run that could not read a file once more as it had before.
[[noreturn]] void refuse_changed(const std::filesystem::path& file,
                                 const std::string& reason);

}  // namespace headroom::detect
