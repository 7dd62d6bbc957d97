// Recognizes a Pascal VOC folder and finds its splits and classes.
// worker/data/labels/voc_labels.cpp reads the boxes.
//
//   Annotations/STEM.xml
//   ImageSets/Main/{train,val,test}.txt   one stem per line
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom::configs {

bool is_voc_folder(const std::filesystem::path& folder);

// Whether `file` is a list of stems, FOLDER/ImageSets/Main/NAME.txt.
bool is_voc_split(const std::filesystem::path& file);

// Returns FOLDER for the list FOLDER/ImageSets/Main/NAME.txt.
std::filesystem::path voc_folder_of(const std::filesystem::path& split);

// The class names in all annotations, sorted. Skips files that are not XML;
// the reader of the boxes reports them.
std::vector<std::string> voc_class_names(const std::filesystem::path& folder);

}  // namespace headroom::configs
