// A small data set on disk, options of a loader for it, and its batches.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/worker/data/data_files.h"
#include "worker/data/loader/loader.h"

namespace headroom::loader {

class LoaderFixture : public ::testing::Test {
 protected:
  static constexpr int64_t kImages = 23;

  LoaderFixture() { index(); }

  void index() {
    const configs::DataConfig config = write_data_set(folder_, kImages);
    dataset_ = labels::index_dataset(config, labels::Split::kTrain).dataset;
  }

  LoaderOptions options(LoaderMode mode = LoaderMode::kTrainMosaic) const {
    LoaderOptions result;
    result.dataset = &dataset_;
    result.mode = mode;
    result.seed = 17;
    result.image_height = 64;
    result.image_width = 96;
    result.global_batch_size = 4;
    result.num_threads = 2;
    result.micro_batch_size = 3;
    return result;
  }

  static std::vector<Batch> take(const LoaderOptions& options, int64_t count) {
    Loader loader(options);
    std::vector<Batch> batches;
    for (int64_t i = 0; i < count; ++i) batches.push_back(loader.next());
    return batches;
  }

  TemporaryFolder folder_;
  labels::Dataset dataset_;
};

}  // namespace headroom::loader
