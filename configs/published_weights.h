// Weights that others publish, from configs/weights/published.yaml, and the
// files of `headroom fetch`, which --weights finds by their names.
//
// Nothing here uses the network. Errors: Error (exit 2).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom::configs {

struct PublishedWeights {
  std::string name;     // "yolov5n.pt"
  std::string network;  // "yolov5n"
  std::string publisher;
  std::string licence;       // "AGPL-3.0"
  std::string licence_text;  // the address of the licence's text
  std::string address;       // the address of the weights file
};

const std::vector<PublishedWeights>& published_weights();

// Returns nullptr if no published file has this name.
const PublishedWeights* find_published(const std::string& name);

// The folder of fetched files. Throws Error if this user has no cache folder.
std::filesystem::path fetched_weights_folder();

// The file that --weights or --teacher names as `given`: `given` itself if it
// exists, or if it is unknown here; else the fetched file of this name, with a
// line for the user added to `notes`. Throws Error if `given` is the name of
// published weights that have not been fetched: the message has their address,
// their licence and the command that gets them.
std::string find_weights(const std::string& given,
                         std::vector<std::string>& notes);

}  // namespace headroom::configs
