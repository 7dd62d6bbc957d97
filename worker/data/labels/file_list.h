// file_list: turns the sources of a split into a sorted list of image files.
//
// Sources are directories (searched recursively), .txt lists of paths, or
// single images; a list or source may name a page (codecs::ImagePage). The
// order of the images does not depend on the file system.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "worker/data/labels/data_report.h"

namespace headroom::labels {

// The order of paths: folder by folder, like std::filesystem::path, so that
// files in "a" precede "a.b". REQUIRES: both paths are lexically normal.
bool path_precedes(std::string_view a, std::string_view b);

// Returns absolute paths, sorted, without duplicates. They are strings because
// millions of std::filesystem::path take gigabytes. Files of image formats that
// are not decoded, and files listed twice, are added to the report. Throws
// Error (exit 4) for a source that cannot be read.
std::vector<std::string> list_images(
    const std::vector<std::filesystem::path>& sources, DataReport& report);

// Whether the name has the suffix of an image format.
bool is_image_name(std::string_view file);

// Whether a program keeps this file or folder for itself: macOS's "._a.jpg",
// "@eaDir" of a Synology server, ".ipynb_checkpoints" and others. Such copies
// of images are not used as data.
bool is_hidden_copy(std::string_view name);

// The suffix in lower case: ".jpg" for "a/B.JPG".
std::string lower_suffix(std::string_view file);

// The label file of an image. It is the path with its last "/images/" replaced
// by "/labels/" and the extension .txt, or, if that file does not exist, the
// .txt file beside the image. If neither exists, the first of the two paths is
// returned.
std::string label_path(std::string_view image);

// The candidates for label_path(), whether they exist or not.
std::vector<std::string> label_paths(std::string_view image);

// Replaces the suffix of a path: "a.txt" for "a.jpg". A page keeps its number:
// "stack#3.txt" for "stack.tif#3".
std::string with_suffix(std::string_view file, std::string_view suffix);

bool file_exists(const std::string& file);

// The first of `files` that exists; files[0] if none exists. REQUIRES: `files`
// is not empty.
std::string first_existing(const std::vector<std::string>& files);

// The names in a folder, sorted. Returns an empty list if the folder cannot be
// read.
std::vector<std::string> names_in(const std::string& folder);

// The file's stem, or STEM_2, STEM_3 and so on if `taken` already contains the
// stem. Adds the returned name to `taken`.
std::string unique_stem(const std::filesystem::path& file,
                        std::set<std::string>& taken);

// Whether the image exists; for a page, whether its file exists.
bool image_exists(const std::filesystem::path& image);

// Throws Error (exit 2) if the image is a page of a file. Called by tools that
// copy whole files.
void refuse_page(const std::filesystem::path& image, const std::string& tag);

// Whether a file name stays inside the folder that it is relative to.
bool stays_in_folder(const std::string& name);

}  // namespace headroom::labels
