// Verification: finds every fault of a data set before training. It uses the
// readers and rules that training uses, so that both report and repair the same
// faults.
//
// Training reads only headers and file ends when it starts; verification
// decodes every image. It changes no file: a corrected copy is written to a
// separate folder.
//
// Errors: throws Error (exit 4) if a source cannot be read. Faults are
// returned, not thrown.
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
  std::string reason;            // why the image is left out; "" if it is kept
  codecs::ImageSize size;        // size when upright; 0 if it cannot be decoded
  codecs::ImageSamples samples;  // kind of the image's samples
  std::vector<BoxLabel> boxes;   // boxes after repairs
  // One for each box, if IndexOptions::keep_outlines is set.
  std::vector<Outline> outlines;
};

struct VerifiedSplit {
  DataReport report;
  std::vector<ImageVerdict> images;
  // The number of images for each kind of samples. Training uses only the
  // images that its model reads (`ch`).
  std::map<codecs::ImageSamples, int64_t> images_by_samples;
  // The message with which training would refuse the split; "" if it would not.
  std::string refusal;
  std::string remedy;  // "" if the report's faults have it
};

// Verifies train, val and, if the data file names it, test.
std::vector<VerifiedSplit> verify_data(const configs::DataConfig& config,
                                       const IndexOptions& options);

// Writes the kept images byte for byte, and their boxes as YOLO text files:
// folder/images/SPLIT, folder/labels/SPLIT and folder/data.yaml. `range` is an
// extra line of data.yaml, or "". Throws Error: exit 2 if the folder is not
// empty, exit 5 if it cannot be written.
void write_corrected_copy(const std::vector<VerifiedSplit>& splits,
                          const std::vector<std::string>& class_names,
                          const std::filesystem::path& folder,
                          const std::string& range = "");

// The report for people: every fault of each split, and with `all` also every
// image.
std::string verification_text(const std::vector<VerifiedSplit>& splits,
                              bool all);
// The report for programs: one JSON document with every fault and every image.
std::string verification_json(const std::vector<VerifiedSplit>& splits);

}  // namespace headroom::labels
