#include "parallel/base/file_kind.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>

#include "parallel/base/check.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

TEST(FileKind, IsSeenInTheFirstBytes) {
  EXPECT_EQ(foreign_kind(""), "an empty file");
  EXPECT_EQ(foreign_kind("\n <!DOCTYPE html>"), "text (HTML or XML)");
  EXPECT_EQ(foreign_kind("\xEF\xBB\xBF<annotation>"), "text (HTML or XML)");
  EXPECT_EQ(foreign_kind("\xFF\xFEn"), "UTF-16 text");
  EXPECT_EQ(foreign_kind("\xFF\xD8\xFF\xE0"), "a JPEG image");
  EXPECT_EQ(foreign_kind(std::string("II*\0", 4)), "a TIFF image");
  EXPECT_EQ(foreign_kind("RIFF1234WEBPVP8 "), "a WebP image");
  EXPECT_EQ(foreign_kind(std::string("\0\0\0\x1C", 4) + "ftypheic"),
            "a HEIC image");
  EXPECT_EQ(foreign_kind(std::string("\0\0\0\x1C", 4) + "ftypisom"),
            "an MP4 video");
  EXPECT_EQ(foreign_kind("train: images\n"), "");
  EXPECT_EQ(foreign_kind("0 .5 .5 .2 .2\n"), "");
}

TEST(FileKind, WhatIsNoWeightsIsCalledWhatItIs) {
  const fs::path file =
      fs::temp_directory_path() / ("file_kind_" + std::to_string(::getpid()));
  const auto refusal = [&](std::string_view bytes) -> std::string {
    std::ofstream(file, std::ios::binary) << bytes;
    try {
      require_no_foreign_weights(file);
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
  EXPECT_EQ(refusal(std::string("\x10\0\0\0\0\0\0\0{}", 10)), "accepted");
  fs::remove(file);
}

}  // namespace
}  // namespace headroom
