// file_list: from the sources of a split to a sorted list of image files.
//
// Sources are directories (searched recursively), .txt lists of paths, or
// single images; a list or source may name a page (codecs::ImagePage). Order
// does not depend on the file system.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "worker/data/labels/data_report.h"

namespace headroom::labels {

// Does a path come first? Folder by folder, as std::filesystem::path orders:
// what lies in "a" comes before "a.b". REQUIRES: both are normal.
bool path_precedes(std::string_view a, std::string_view b);

// Absolute paths, sorted, each once: strings, because millions of
// std::filesystem::path take gigabytes. Files whose name says that they are
// images of a format that is not decoded here, and files listed twice, go to
// the report. Throws Error (exit 4): a source that cannot be read.
std::vector<std::string> list_images(
    const std::vector<std::filesystem::path>& sources, DataReport& report);

// ".jpg" of "a/B.JPG".
std::string lower_suffix(std::string_view file);

// The file with the labels of an image: the last "/images/" of its path
// replaced by "/labels/", extension .txt; if there is no such file, beside the
// image. The first of the two where neither exists.
std::string label_path(std::string_view image);

// These places, whether there is a file or not.
std::vector<std::string> label_paths(std::string_view image);

// The same path with another suffix, "stack#3.txt" of "stack.tif#3", or one
// more: "a.txt" of "a.jpg" and
// ".txt".
std::string with_suffix(std::string_view file, std::string_view suffix);

bool file_exists(const std::string& file);

// What lies in a folder, sorted; nothing where it cannot be listed.
std::vector<std::string> names_in(const std::string& folder);

// Is there such a file, or the file of such a page?
bool image_exists(const std::filesystem::path& image);

// Throws Error (exit 2) where an image is a page of a file, for somebody who
// copies whole files.
void refuse_page(const std::filesystem::path& image, const std::string& tag);

// Does a file name lead nowhere but into the folder that it starts from?
bool stays_in_folder(const std::string& name);

}  // namespace headroom::labels
