// Recognizes a Pascal VOC folder and finds its splits and classes. Its boxes
// are read by worker/data/labels/voc_labels.cpp.
//
//   Annotations/STEM.xml   ImageSets/Main/{train,val,test}.txt   one stem a
//   line
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom::configs {

bool is_voc_folder(const std::filesystem::path& folder);

// Is `file` a list of stems, FOLDER/ImageSets/Main/NAME.txt of such a folder?
bool is_voc_split(const std::filesystem::path& file);

// FOLDER of such a list.
std::filesystem::path voc_folder_of(const std::filesystem::path& split);

// The names of all objects of all annotations, sorted. Files that are not XML
// are skipped here and reported when their boxes are read.
std::vector<std::string> voc_class_names(const std::filesystem::path& folder);

}  // namespace headroom::configs
