#include "tests/support/gray_images.h"

#include <cstring>
#include <fstream>
#include <string>

#include "configs/data_config.h"

namespace headroom {
namespace {

// A BMP file with 24 bits per pixel; each row is padded to a multiple of 4
// bytes.
std::string bmp(int64_t side) {
  constexpr uint32_t kHeader = 54;
  const auto row = static_cast<uint32_t>((3 * side + 3) / 4 * 4);
  const uint32_t pixels = row * static_cast<uint32_t>(side);
  std::string file(kHeader + pixels, '\x72');
  std::memset(file.data(), 0, kHeader);
  const auto put = [&file](size_t at, uint32_t value) {
    std::memcpy(file.data() + at, &value, sizeof value);
  };
  file[0] = 'B';
  file[1] = 'M';
  put(2, kHeader + pixels);
  put(10, kHeader);
  put(14, 40);  // size of the second header
  put(18, static_cast<uint32_t>(side));
  put(22, static_cast<uint32_t>(side));
  put(26, 1 | 24U << 16);  // planes, bits
  put(34, pixels);
  return file;
}

}  // namespace

labels::Dataset gray_images(const std::filesystem::path& folder, int64_t count,
                            int64_t side, int64_t boxes, int64_t num_classes) {
  std::filesystem::create_directories(folder / "images");
  std::filesystem::create_directories(folder / "labels");
  const std::string picture = bmp(side);
  constexpr int64_t kColumns = 31;
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = std::to_string(i);
    std::ofstream(folder / "images" / (name + ".bmp"), std::ios::binary)
        << picture;
    std::ofstream labels(folder / "labels" / (name + ".txt"));
    for (int64_t box = 0; box < boxes; ++box) {
      labels << box % num_classes << ' '
             << 0.1 + 0.025 * static_cast<double>(box % kColumns) << ' '
             << 0.1 + 0.025 * static_cast<double>(box / kColumns % kColumns)
             << " 0.05 0.07\n";
    }
  }
  configs::DataConfig config;
  config.file = folder / "data.yaml";
  config.val = {folder / "images"};
  for (int64_t i = 0; i < num_classes; ++i)
    config.names.push_back("class" + std::to_string(i));
  return labels::index_dataset(config, labels::Split::kVal).dataset;
}

}  // namespace headroom
