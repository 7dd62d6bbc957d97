// The YAML files embedded in the program at build time: configs/model, hyp,
// cluster, cards, flags and weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::yaml {

struct ShippedFile {
  std::string path;  // "model/yolov5n.yaml", relative to configs/
  std::string_view content;
};

const std::vector<ShippedFile>& shipped_files();

// The content of a shipped file. REQUIRES: a shipped file has this path.
std::string shipped_text(const std::string& path);

// The text of a YAML file, and its name in refusals.
struct NamedText {
  std::string file;
  std::string text;
};

// `name_or_path`: an existing file, else a shipped file of `folder` ("model",
// "hyp") with or without its ".yaml". Throws Error{tag} with exit 2 that names
// the nearest shipped name and lists all shipped names. If `as_given` is not
// "", the message shows it instead of `name_or_path`.
NamedText file_or_shipped(const std::string& name_or_path,
                          const std::string& folder, const std::string& tag,
                          const std::string& as_given = "");

// The shipped names of one folder, without ".yaml", sorted.
std::vector<std::string> shipped_names(const std::string& folder);

}  // namespace headroom::yaml
