#include "worker/data/labels/split.h"

#include "parallel/base/check.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

template <typename Value>
const Value& of_split(Split split, const Value& train, const Value& val,
                      const Value& test) {
  switch (split) {
    case Split::kTrain:
      return train;
    case Split::kVal:
      return val;
    case Split::kTest:
      break;
  }
  return test;
}

}  // namespace

std::string split_name(Split split) {
  return of_split<std::string>(split, "train", "val", "test");
}

const std::vector<fs::path>& split_sources(const configs::DataConfig& config,
                                           Split split) {
  const auto& sources = of_split(split, config.train, config.val, config.test);
  if (sources.empty()) {
    const std::string name = split_name(split);
    throw Error("data", config.file.string() + " names no images for " + name,
                "add the key " + name, ExitCode::kData);
  }
  return sources;
}

const fs::path& split_images(const configs::DataConfig& config, Split split) {
  return of_split(split, config.train_images, config.val_images,
                  config.test_images);
}

}  // namespace headroom::labels
