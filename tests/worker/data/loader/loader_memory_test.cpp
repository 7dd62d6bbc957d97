// Compares the memory of a rank that loads a part of each large image with that
// of a rank that loads whole images. Measured is the resident set of a process
// that only loads.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>

#include "parallel/base/units.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/data/loader/loader.h"
#include "worker/data/loader/loader_plan.h"

namespace headroom::loader {
namespace {

constexpr int64_t kHeight = 1536;
constexpr int64_t kWidth = 2048;
constexpr int kImages = 3;

int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(key)) {
      return std::stoll(line.substr(key.size() + 1)) * 1024;
    }
  }
  return 0;
}

struct Cost {
  int64_t bytes = 0;  // the largest growth of the process
  double seconds = 0;
};

// The cost of a pass over the data, in a process of its own.
Cost cost_of_loading(const LoaderOptions& options) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::malloc_trim(0);
    const int64_t before = status_bytes("VmRSS:");
    std::ofstream("/proc/self/clear_refs") << 5;  // resets VmHWM
    const auto start = std::chrono::steady_clock::now();
    {
      Loader loader(options);
      for (int i = 0; i < kImages; ++i) loader.next();
    }
    const std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - start;
    const Cost cost{status_bytes("VmHWM:") - before, seconds.count()};
    const bool sent = ::write(ends[1], &cost, sizeof(cost)) == sizeof(cost);
    ::_exit(sent ? 0 : 1);
  }
  ::close(ends[1]);
  Cost cost;
  EXPECT_EQ(::read(ends[0], &cost, sizeof(cost)), ssize_t{sizeof(cost)});
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return cost;
}

class LoaderMemory : public ::testing::Test {
 protected:
  // Pictures get pages of their own, which are returned when they are freed, so
  // that memory kept by malloc is not measured.
  LoaderMemory() { ::mallopt(M_MMAP_THRESHOLD, 128 << 10); }

  // Loads pictures of the network's size for training, one per batch: whole,
  // then in parts. Returns the bytes by which the memory for whole pictures
  // exceeds the loader's own estimate.
  int64_t compare(const std::string& name, const std::string& bytes,
                  int bands = codecs::kColours,
                  const ValueRanges& ranges = {}) {
    for (int i = 0; i < kImages; ++i) {
      const std::string name_of_file = std::to_string(i);
      // The content decides the format, not the name.
      folder_.write("images/" + name_of_file + ".jpg", bytes);
      folder_.write("labels/" + name_of_file + ".txt", "0 .5 .5 .2 .2\n");
    }
    labels::IndexOptions index;
    index.limits.bands = bands;
    index.limits.ranges = ranges;
    const labels::Dataset dataset = indexed_images(folder_, "images", index);
    LoaderOptions options;
    options.dataset = &dataset;
    options.bands = bands;
    options.ranges = ranges;
    options.mode = LoaderMode::kTrainRect;
    options.image_height = kHeight;
    options.image_width = kWidth;
    options.global_batch_size = 1;
    // By default, a run of one process gets the whole limit, and each rank of a
    // larger run gets a part. Here both get the same limit.
    options.host_memory_limit_bytes = int64_t{1} << 20;
    const Cost whole = cost_of_loading(options);
    for (const int64_t rank : {0, 2}) {
      options.own_rows = [rank](int64_t height) {
        return plan::SampleRange{height / 4 * rank, height / 4 * (rank + 1)};
      };
      const Cost part = cost_of_loading(options);
      std::printf("%s, rows %ld/4: %s in %.2f s; whole: %s in %.2f s\n",
                  name.c_str(), static_cast<long>(rank),
                  format_bytes(part.bytes).c_str(), part.seconds,
                  format_bytes(whole.bytes).c_str(), whole.seconds);
      // A quarter of the rows takes more than a quarter of the memory, since
      // the default warp reads up to twice the rows.
      EXPECT_LT(part.bytes, whole.bytes * 3 / 5) << name << " rank " << rank;
    }
    options.own_rows = {};
    return whole.bytes - LoaderPlan(options).budget().total_bytes();
  }

  TemporaryFolder folder_;
  const cv::Mat picture_ = test_picture(kHeight, kWidth, 1);
};

TEST_F(LoaderMemory, Jpeg) { compare("JPEG", encode_jpeg(picture_, {})); }

TEST_F(LoaderMemory, Png) { compare("PNG", encode_png(picture_)); }

TEST_F(LoaderMemory, Bmp) { compare("BMP", encode_bmp(picture_)); }

TEST_F(LoaderMemory, Tiff) {
  compare("TIFF", encode_tiff(picture_, {.compression = COMPRESSION_LZW}));
}

// In mosaics of windows, the loader holds only the rows around the windows, not
// the pictures. A loader of pictures as large as a window is the baseline: the
// memory above it is at most what the loader predicts.
TEST_F(LoaderMemory, RandomCrops) {
  constexpr int kWindow = 256;
  const cv::Mat small = picture_(cv::Rect(0, 0, kWindow, kWindow)).clone();
  for (int i = 0; i < kImages; ++i) {
    const std::string name = std::to_string(i);
    folder_.write("large/" + name + ".jpg", encode_jpeg(picture_, {}));
    folder_.write("small/" + name + ".jpg", encode_jpeg(small, {}));
    for (const char* folder : {"large/", "small/"}) {
      folder_.write(folder + name + ".txt", "0 .5 .5 .2 .2\n");
    }
  }
  struct Loaded {
    Cost cost;
    int64_t predicted = 0;
  };
  const auto load = [&](const std::string& folder, bool random_crop) {
    const labels::Dataset dataset = indexed_images(folder_, folder);
    LoaderOptions options;
    options.dataset = &dataset;
    options.image_height = options.image_width = kWindow;
    options.global_batch_size = 1;
    options.host_memory_limit_bytes = int64_t{1} << 20;
    options.random_crop = random_crop;
    const Loaded loaded{cost_of_loading(options),
                        LoaderPlan(options).budget().total_bytes()};
    std::printf("%s%s: %s in %.2f s, predicted %s\n", folder.c_str(),
                random_crop ? ", windows" : "",
                format_bytes(loaded.cost.bytes).c_str(), loaded.cost.seconds,
                format_bytes(loaded.predicted).c_str());
    return loaded;
  };
  const Loaded shrunk = load("large", false);
  const Loaded windows = load("large", true);
  const Loaded beside = load("small", false);
  EXPECT_LT(windows.cost.bytes, shrunk.cost.bytes * 2 / 3);
  EXPECT_LT(windows.predicted, shrunk.predicted / 2);
  constexpr int64_t kRounding = int64_t{1} << 20;  // for pages and the heap
  EXPECT_LE(windows.cost.bytes - beside.cost.bytes,
            windows.predicted - beside.predicted + kRounding);
}

TEST_F(LoaderMemory, TiffOfBands) {
  constexpr int kBands = 5;
  constexpr int64_t kBeside = int64_t{2} << 20;  // for a strip and the heap
  for (const bool planar : {false, true}) {
    const std::string name = planar ? "TIFF of planes" : "TIFF of bands";
    const std::string bytes =
        encode_tiff(test_bands(kHeight, kWidth, kBands, 1), {.planar = planar});
    EXPECT_LE(compare(name, bytes, kBands), kBeside) << name;
  }
}

// Images of 16 bits take twice the bytes, and the loader's own estimate
// includes that.
TEST_F(LoaderMemory, SixteenBits) {
  constexpr int64_t kBeside = int64_t{2} << 20;  // room for rows and the heap
  cv::Mat deep;
  picture_.convertTo(deep, CV_16U, 257);
  EXPECT_LE(compare("PNG of 16 bits", codecs::encode_png_bytes(deep),
                    codecs::kColours, {{0, 65535}}),
            kBeside);
}

}  // namespace
}  // namespace headroom::loader
