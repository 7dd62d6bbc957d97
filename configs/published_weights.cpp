#include "configs/published_weights.h"

#include <algorithm>
#include <system_error>

#include "configs/yaml/scalar.h"
#include "configs/yaml/shipped_files.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"
#include "parallel/base/environment.h"

namespace headroom::configs {
namespace {

namespace fs = std::filesystem;

std::vector<PublishedWeights> read_published() {
  const std::string file = "weights/published.yaml";
  std::vector<PublishedWeights> all;
  for (const auto& [name, place, release] :
       yaml::parse_yaml(yaml::shipped_text(file), file).entries) {
    const auto text = [&release = release](const char* key) {
      return yaml::as_text(yaml::require(release, key), key);
    };
    for (const auto& [file_name, file_place, network] :
         yaml::require(release, "files").entries) {
      all.push_back({.name = file_name,
                     .network = yaml::as_text(network, file_name),
                     .publisher = text("publisher"),
                     .licence = text("licence"),
                     .licence_text = text("licence_text"),
                     .address = text("folder") + file_name});
    }
  }
  return all;
}

// "" if this user has no cache folder.
fs::path fetched_folder() {
  const fs::path cache = user_cache_folder();
  return cache.empty() ? "" : cache / "weights";
}

}  // namespace

const std::vector<PublishedWeights>& published_weights() {
  static const std::vector<PublishedWeights> all = read_published();
  return all;
}

const PublishedWeights* find_published(const std::string& name) {
  const auto& all = published_weights();
  const auto found = std::ranges::find(all, name, &PublishedWeights::name);
  return found == all.end() ? nullptr : &*found;
}

fs::path fetched_weights_folder() {
  fs::path folder = fetched_folder();
  if (!folder.empty()) return folder;
  throw Error("fetch", "this user has no folder for fetched weights",
              "set HOME, or XDG_CACHE_HOME, to an absolute path");
}

std::string find_weights(const std::string& given,
                         std::vector<std::string>& notes) {
  std::error_code ignored;
  const std::string name = fs::path(given).filename().string();
  const PublishedWeights* const published = find_published(name);
  if (published == nullptr || fs::exists(given, ignored)) return given;
  // If `given` contains a folder, do not look for the name in the cache.
  const fs::path fetched = fetched_folder() / name;
  const bool is_name = given == name || given == fetched;
  if (is_name && fs::exists(fetched, ignored)) {
    notes.push_back("weights: " + name + " is " + fetched.string() +
                    ", which headroom fetch stored (" + published->publisher +
                    ", " + published->licence + ")");
    return fetched.string();
  }
  throw Error("weights",
              "there is no file " + given + "; " + published->publisher +
                  " publishes it at " + published->address + " under " +
                  published->licence + ", and nothing is downloaded unasked",
              "type headroom fetch " + name + ", then this command again" +
                  (is_name ? "" : ", with " + name + " without a folder"));
}

}  // namespace headroom::configs
