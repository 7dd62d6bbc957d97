// Verification: everything that is wrong with a data set, found before training
// by the readers and rules that training uses, so that both say and do the
// same.
//
// Training looks at headers and file ends when it starts; this decodes every
// image. Nothing is changed: a corrected copy goes to a folder of its own.
//
// Errors: Error (exit 4) for sources that cannot be read; faults are the
// result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "configs/data_config.h"
#include "worker/data/labels/data_report.h"
#include "worker/data/labels/dataset.h"

namespace headroom::labels {

struct ImageVerdict {
  std::filesystem::path image;
  std::string reason;            // why it is left out; "" if it is sound
  codecs::ImageSize size;        // upright; 0 if it is left out
  codecs::ImageSamples samples;  // what its pixels are made of
  std::vector<BoxLabel> boxes;   // boxes after repairs
  // One for each box, with IndexOptions::keep_outlines.
  std::vector<Outline> outlines;
};

struct VerifiedSplit {
  DataReport report;
  std::vector<ImageVerdict> images;
  // How many images have such pixels. Training takes those that its model
  // reads (`ch`).
  std::map<codecs::ImageSamples, int64_t> images_by_samples;
  // The message with which training would refuse the split; "" if none.
  std::string refusal;
};

// Train, val and, where there is one, test.
std::vector<VerifiedSplit> verify_data(const configs::DataConfig& config,
                                       const IndexOptions& options);

// Images that are kept, byte for byte, and their boxes as YOLO text files:
// folder/images/SPLIT, folder/labels/SPLIT, folder/data.yaml, of which `range`
// is a line, or "". Throws Error:
// exit 2 if the folder is not empty, exit 5 if it cannot be written.
void write_corrected_copy(const std::vector<VerifiedSplit>& splits,
                          const std::vector<std::string>& class_names,
                          const std::filesystem::path& folder,
                          const std::string& range = "");

// The report that people read: per split every fault, with `all` also every
// image.
std::string verification_text(const std::vector<VerifiedSplit>& splits,
                              bool all);
// The report that programs read: one document with every fault and every image.
std::string verification_json(const std::vector<VerifiedSplit>& splits);

}  // namespace headroom::labels
