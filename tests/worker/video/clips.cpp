#include "tests/worker/video/clips.h"

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "worker/data/codecs/image_writer.h"

namespace headroom::video {
namespace {

constexpr int kMicroseconds = 100'000;  // the duration of a picture

std::string number(uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) {
    bytes += static_cast<char>(value >> (8 * i) & 0xff);
  }
  return bytes;
}

std::string numbers(const std::vector<uint32_t>& values) {
  std::string bytes;
  for (const uint32_t value : values) bytes += number(value);
  return bytes;
}

std::string chunk(const std::string& name, std::string content) {
  const auto size = static_cast<uint32_t>(content.size());
  if (size % 2 == 1) content += '\0';
  return name + number(size) + content;
}

std::string list(const std::string& name, const std::string& content) {
  return chunk("LIST", name + content);
}

}  // namespace

cv::Mat clip_picture(int height, int width, int number) {
  cv::Mat picture(height, width, CV_8UC3);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const bool is_square =
          y >= 8 && y < 24 && x >= 8 + number && x < 24 + number;
      picture.at<cv::Vec3b>(y, x) =
          is_square ? cv::Vec3b(230, 60, 40)
                    : cv::Vec3b(static_cast<uint8_t>(x / 2 + 20),
                                static_cast<uint8_t>(y / 2 + 40), 90);
    }
  }
  return picture;
}

std::string avi_clip(int height, int width, int pictures) {
  const auto w = static_cast<uint32_t>(width);
  const auto h = static_cast<uint32_t>(height);
  const auto count = static_cast<uint32_t>(pictures);
  const std::string main =
      numbers({kMicroseconds, 0, 0, 0x10, count, 0, 1, 0, w, h, 0, 0, 0, 0});
  const std::string stream =
      "vidsMJPG" + numbers({0, 0, 0, kMicroseconds, 1'000'000, 0, count, 0,
                            0xffffffff, 0, 0, w | h << 16});
  const std::string format = numbers({40, w, h, 1 | 24 << 16}) + "MJPG" +
                             numbers({w * h * 3, 0, 0, 0, 0});
  std::string movie, index;
  for (int i = 1; i <= pictures; ++i) {
    const std::string jpeg =
        codecs::encode_jpeg(clip_picture(height, width, i), 95);
    index += "00dc" + numbers({0x10, static_cast<uint32_t>(movie.size() + 4),
                               static_cast<uint32_t>(jpeg.size())});
    movie += chunk("00dc", jpeg);
  }
  const std::string header = list(
      "hdrl", chunk("avih", main) +
                  list("strl", chunk("strh", stream) + chunk("strf", format)));
  return chunk("RIFF",
               "AVI " + header + list("movi", movie) + chunk("idx1", index));
}

ProgramFolder::ProgramFolder(const std::filesystem::path& folder)
    : before_(std::getenv("PATH")) {
  setenv("PATH", folder.c_str(), /*overwrite=*/1);
}

ProgramFolder::~ProgramFolder() { setenv("PATH", before_.c_str(), 1); }

}  // namespace headroom::video
