// The YAML files that are part of the program: configs/model, hyp, cluster,
// cards and flags, embedded when it is built.
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

// The content of one of them. REQUIRES: there is one of this path.
std::string shipped_text(const std::string& path);

// Text of a YAML file and the name that refusals call it by.
struct NamedText {
  std::string file;
  std::string text;
};

// `name_or_path`: an existing file wins; else a shipped file of `folder`
// ("model", "hyp") with or without its ".yaml". Throws Error{tag} with exit 2
// that names the nearest shipped name and lists them all; it calls the file
// `as_given`, where that is not "".
NamedText file_or_shipped(const std::string& name_or_path,
                          const std::string& folder, const std::string& tag,
                          const std::string& as_given = "");

// The names of one folder, without ".yaml", sorted.
std::vector<std::string> shipped_names(const std::string& folder);

}  // namespace headroom::yaml
