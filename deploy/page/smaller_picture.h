// Makes a picture small enough for a report.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace headroom::page {

// The picture as a JPEG of at most `most_bytes`, as large as that allows. "" if
// the file cannot be read, or if its longer side would have less than 320
// pixels.
std::string smaller_picture(const std::filesystem::path& file,
                            size_t most_bytes);

}  // namespace headroom::page
