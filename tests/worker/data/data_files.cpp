#include "tests/worker/data/data_files.h"

#include <cstring>

#include "worker/data/sampling/random.h"

namespace headroom {

namespace fs = std::filesystem;

cv::Mat test_picture(int height, int width, uint64_t seed) {
  cv::Mat picture(height, width, CV_8UC3);
  sampling::RandomStream draws(seed, 0, 0,
                               sampling::RandomPurpose::kSyntheticImage);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const uint64_t bits = draws.bits();
      picture.at<cv::Vec3b>(y, x) = {
          static_cast<uint8_t>(x * 160 / width + bits % 64),
          static_cast<uint8_t>(y * 160 / height + (bits >> 8) % 64),
          static_cast<uint8_t>(seed * 31 % 160 + (bits >> 16) % 64)};
    }
  }
  return picture;
}

std::string encode_bmp(const cv::Mat& rgb) {
  const int row_bytes = (rgb.cols * 24 + 31) / 32 * 4;
  std::string bytes(54 + static_cast<size_t>(row_bytes) * rgb.rows, '\0');
  const auto put = [&](size_t at, uint32_t value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  };
  bytes[0] = 'B';
  bytes[1] = 'M';
  put(2, static_cast<uint32_t>(bytes.size()));
  put(10, 54);
  put(14, 40);
  put(18, static_cast<uint32_t>(rgb.cols));
  put(22, static_cast<uint32_t>(rgb.rows));
  put(26, 1 | 24 << 16);
  for (int y = 0; y < rgb.rows; ++y) {
    char* row =
        bytes.data() + 54 + static_cast<size_t>(rgb.rows - 1 - y) * row_bytes;
    for (int x = 0; x < rgb.cols; ++x) {
      const auto pixel = rgb.at<cv::Vec3b>(y, x);
      for (int c = 0; c < 3; ++c) {
        row[3 * x + c] = static_cast<char>(pixel[2 - c]);
      }
    }
  }
  return bytes;
}

configs::DataConfig data_config(const TemporaryFolder& folder,
                                const fs::path& train) {
  configs::DataConfig config;
  config.file = folder.path() / "data.yaml";
  config.names = {"a", "b", "c"};
  config.train = {train};
  return config;
}

configs::DataConfig write_data_set(const TemporaryFolder& folder, int count) {
  for (int i = 0; i < count; ++i) {
    sampling::RandomStream draws(7, 0, static_cast<uint64_t>(i),
                                 sampling::RandomPurpose::kSyntheticImage);
    const auto height = static_cast<int>(20 + draws.below(60));
    const auto width = static_cast<int>(20 + draws.below(60));
    const std::string name = "train/" + std::to_string(100 + i);
    folder.write("images/" + name + ".bmp",
                 encode_bmp(test_picture(height, width, i)));
    std::string labels;
    // The first image always has boxes, so that every data set has some.
    const int64_t boxes = i == 0 ? 2 : draws.below(4);
    for (int64_t box = 0; box < boxes; ++box) {
      const double w = draws.uniform(0.2, 0.6);
      const double h = draws.uniform(0.2, 0.6);
      labels += std::to_string(draws.below(3));
      for (const double value : {draws.uniform(w / 2, 1 - w / 2),
                                 draws.uniform(h / 2, 1 - h / 2), w, h}) {
        labels += " " + std::to_string(value);
      }
      labels += "\n";
    }
    folder.write("labels/" + name + ".txt", labels);
  }
  return data_config(folder, folder.path() / "images/train");
}

labels::Dataset indexed_images(const TemporaryFolder& folder,
                               const std::string& images,
                               const labels::IndexOptions& options) {
  return labels::index_dataset(data_config(folder, folder.path() / images),
                               labels::Split::kTrain, options)
      .dataset;
}

labels::Dataset indexed_data_set(const TemporaryFolder& folder, int count) {
  return labels::index_dataset(write_data_set(folder, count),
                               labels::Split::kTrain)
      .dataset;
}

cv::Mat rows_of(const cv::Mat& picture, codecs::PixelRows rows) {
  return picture.rowRange(static_cast<int>(rows.begin),
                          static_cast<int>(rows.end));
}

fs::path shared_data_set(const std::string& name) {
  return fs::path(HEADROOM_SOURCE_DIR) / "../shared/datasets" / name;
}

bool same_pixels(const cv::Mat& a, const cv::Mat& b) {
  if (a.size() != b.size() || a.type() != b.type()) return false;
  for (int y = 0; y < a.rows; ++y) {
    if (std::memcmp(a.ptr(y), b.ptr(y), a.cols * a.elemSize()) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace headroom
