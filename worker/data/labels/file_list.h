// file_list: from the sources of a split to a sorted list of image files.
//
// Sources are directories (searched recursively), .txt lists of paths, or
// single images. Order does not depend on the file system.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "worker/data/labels/data_report.h"

namespace headroom::labels {

// Absolute paths, sorted, each once. Files whose name says that they are
// images of a format that is not decoded here, and files listed twice, go to
// the report. Throws Error (exit 4): a source that cannot be read.
std::vector<std::filesystem::path> list_images(
    const std::vector<std::filesystem::path>& sources, DataReport& report);

// ".jpg" of "a/B.JPG".
std::string lower_suffix(const std::filesystem::path& file);

// The file with the labels of an image: the last "/images/" of its path
// replaced by "/labels/", extension .txt; if there is no such file, beside the
// image. The first of the two where neither exists.
std::filesystem::path label_path(const std::filesystem::path& image);

// Does a file name lead nowhere but into the folder that it starts from?
bool stays_in_folder(const std::string& name);

}  // namespace headroom::labels
