// headroom fetch: gets published weights into the user's cache.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "configs/published_weights.h"
#include "deploy/cli/commands.h"
#include "deploy/fetch/download.h"
#include "deploy/fetch/weights_cache.h"
#include "parallel/base/check.h"
#include "parallel/base/progress.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

std::string names_of_all() {
  return joined(configs::published_weights(), ", ",
                [](const auto& weights) { return weights.name; });
}

const configs::PublishedWeights& asked_for(const CommandLine& line) {
  if (line.operands.empty()) {
    throw Error("fetch", "no weights are named",
                "write headroom fetch NAME; there are " + names_of_all());
  }
  const std::string& name = line.operands.front();
  for (const std::string& spelling : {name, name + ".pt"}) {
    if (const auto* weights = configs::find_published(spelling)) {
      return *weights;
    }
  }
  throw Error("fetch",
              name +
                  " is none of the published weights that can be trained "
                  "here, whose networks are the detectors of YOLOv5, YOLOv5u "
                  "and YOLOv8",
              "name one of " + names_of_all());
}

// The address of the file: the publisher's, or in the folder of --from.
std::string address_of(const CommandLine& line,
                       const configs::PublishedWeights& weights) {
  if (!line.has("--from")) return weights.address;
  std::string folder = line.value_of("--from");
  if (folder.empty()) {
    throw Error("fetch", "--from is empty",
                "give it an address, or leave it out for the publisher's");
  }
  constexpr std::string_view kScheme = "https://";
  if (std::ranges::equal(
          std::string_view(folder).substr(0, kScheme.size()), kScheme, {},
          [](unsigned char c) { return static_cast<char>(std::tolower(c)); })) {
    folder.replace(0, kScheme.size(), kScheme);
  }
  fetch::require_address(folder);
  return folder + (folder.ends_with('/') ? "" : "/") + weights.name;
}

std::string said_by(const fetch::Answer& answer) {
  return answer.host + ": " + exact_bytes(answer.bytes) +
         (answer.etag.empty() ? "" : ", ETag " + answer.etag) +
         (answer.last_modified.empty()
              ? ""
              : ", last modified " + answer.last_modified) +
         (answer.resumed_at > 0
              ? "; resumed after " + exact_bytes(answer.resumed_at)
              : "");
}

}  // namespace

int fetch_command(const CommandLine& line) {
  const configs::PublishedWeights& weights = asked_for(line);
  const std::string address = address_of(line, weights);
  const fs::path folder = configs::fetched_weights_folder();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw Error("fetch",
                folder.string() + " cannot be made (" + error.message() + ")",
                "set XDG_CACHE_HOME to a folder that you may write into",
                ExitCode::kResource);
  }
  fetch::require_licence(folder, weights, line.has("--accept-licence"));
  ToolProgress progress;
  const fetch::FetchedFile file = fetch::fetch_weights(
      folder, weights.name, address, [&](int64_t done, int64_t total) {
        progress.reach(weights.name, done, total, kBytes);
      });
  progress.clear();
  if (!file.was_there) {
    std::printf("from:     %s\nanswer:   %s\n", address.c_str(),
                said_by(file.answer).c_str());
  }
  const char* const compared =
      file.has_older_note ? ", as noted at the first fetch"
      : file.was_there    ? "; no fetch has noted one"
                          : ", noted now: a later fetch is compared with it";
  std::printf(
      "sha256:   %s%s\nlicence:  %s (%s), accepted\n%s %s\nuse it:   headroom "
      "train --data DATA.YAML --weights %s\n",
      file.sha256.c_str(), compared, weights.licence.c_str(),
      weights.licence_text.c_str(),
      file.was_there ? "is there:" : "stored:  ", file.path.c_str(),
      weights.name.c_str());
  return 0;
}

}  // namespace headroom::cli
