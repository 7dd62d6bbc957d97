// The images and videos that --source names: an image, a video, a folder
// (searched recursively for images, but not for videos), a pattern with * or ?,
// or a .txt list of images.
//
// Errors: Error (exit 4) if no image or video is found, and for an address, a
// camera or a list of streams, which are not supported; the message has the
// remedy.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom::detect {

struct ImageSources {
  // Absolute, sorted, without duplicates.
  std::vector<std::filesystem::path> images, videos;
  std::vector<std::string> left_out;  // files that are skipped: "FILE: why"
};

ImageSources find_images(const std::string& source);

// Ends a run because a file has changed since the run first read it.
[[noreturn]] void refuse_changed(const std::filesystem::path& file,
                                 const std::string& reason);

}  // namespace headroom::detect
