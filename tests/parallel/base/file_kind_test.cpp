#include "parallel/base/file_kind.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>

#include "parallel/base/check.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

std::string kind_of(std::string_view head) {
  return to_string(foreign_kind(head));
}

TEST(FileKind, IsSeenInTheFirstBytes) {
  EXPECT_EQ(kind_of(""), "an empty file");
  EXPECT_EQ(kind_of("\n <!DOCTYPE html>"), "text (HTML or XML)");
  EXPECT_EQ(kind_of("\xEF\xBB\xBF<annotation>"), "text (HTML or XML)");
  EXPECT_EQ(kind_of("\xFF\xFEn"), "UTF-16 text");
  EXPECT_EQ(kind_of("\xFF\xD8\xFF\xE0"), "a JPEG image");
  EXPECT_EQ(kind_of(std::string("II*\0", 4)), "a TIFF image");
  EXPECT_EQ(kind_of("RIFF1234WEBPVP8 "), "a WebP image");
  EXPECT_EQ(kind_of(std::string("\0\0\0\x1C", 4) + "ftypheic"), "a HEIC image");
  EXPECT_EQ(kind_of(std::string("\0\0\0\x1C", 4) + "ftypisom"), "an MP4 video");
  EXPECT_EQ(kind_of("train: images\n"), "");
  EXPECT_EQ(kind_of("0 .5 .5 .2 .2\n"), "");
}

TEST(FileKind, OnlyFormatsOfImagesAreImages) {
  EXPECT_TRUE(is_image(foreign_kind("\x89PNG")));
  EXPECT_TRUE(is_image(ForeignKind::kAvif));
  EXPECT_FALSE(is_image(ForeignKind::kVideo));
  EXPECT_FALSE(is_image(ForeignKind::kNone));
}

TEST(FileKind, AFileThatIsNoWeightsIsNamedByItsKind) {
  const fs::path file =
      fs::temp_directory_path() / ("file_kind_" + std::to_string(::getpid()));
  const auto refusal = [&](std::string_view bytes) -> std::string {
    std::ofstream(file, std::ios::binary) << bytes;
    try {
      require_weights(file);
    } catch (const Error& error) {
      return std::string(error.what())
          .substr(("[weights] " + file.string()).size());
    }
    return "accepted";
  };
  const std::string remedy = ": name a .safetensors file, or YOLOv5's .pt";
  EXPECT_EQ(refusal(""), " is an empty file, not weights" + remedy);
  EXPECT_EQ(refusal("<html>"), " is text (HTML or XML), not weights" + remedy);
  EXPECT_EQ(refusal("train: images\n"), " is text, not weights" + remedy);
  EXPECT_EQ(refusal("\x89PNG"), " is a PNG image, not weights" + remedy);
  EXPECT_EQ(refusal(std::string("\x7F\x03\x81\x02 1234", 9)),
            " is damaged, or neither safetensors nor a checkpoint" + remedy);
  const std::string exported =
      ", not weights: exported networks are not read back: name the "
      ".safetensors or .pt file that it was made from";
  EXPECT_EQ(refusal("\x08\x08\x12\x07pytorch12"),
            " is an ONNX network" + exported);
  EXPECT_EQ(refusal("ftrt1234"), " is a TensorRT engine" + exported);
  EXPECT_EQ(refusal("PK\x03\x04 best/constants.pkl"),
            " is a TorchScript network" + exported);
  EXPECT_EQ(refusal("PK\x03\x04 best/data.pkl"), "accepted");
  EXPECT_EQ(refusal(std::string("\x10\0\0\0\0\0\0\0{}", 10)), "accepted");
  fs::remove(file);
  EXPECT_THROW(
      {
        try {
          require_weights("gone.pt", ", or leave --weights out");
        } catch (const Error& error) {
          EXPECT_STREQ(
              error.what(),
              "[weights] there is no file gone.pt: nothing is "
              "downloaded: get the file, YOLOv5's own with "
              "headroom fetch, and give its path, or leave --weights out");
          throw;
        }
      },
      Error);
}

}  // namespace
}  // namespace headroom
