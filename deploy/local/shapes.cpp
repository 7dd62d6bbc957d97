// headroom-shapes: draws a small data set for trying a training.
//
//   headroom-shapes DIR   DIR/{images,labels}/{train,val}, DIR/data.yaml
//
// Circles, rectangles and triangles of any colour and angle on textured
// backgrounds: three classes, one to four objects per image. The colour never
// indicates the class. Deterministic: a seed always gives the same data set.
#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "deploy/local/shape_picture.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/data/codecs/image_writer.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

constexpr int kJpegQuality = 90;

struct Options {
  fs::path folder;
  int train = 160;
  int val = 40;
  int size = 160;
  uint64_t seed = 0;
};

void write_file(const fs::path& file, const std::string& bytes) {
  std::ofstream stream(file, std::ios::binary);
  stream << bytes;
  stream.close();
  if (!stream) {
    throw Error("shapes", file.string() + " cannot be written",
                "choose another folder or free some space");
  }
}

void write_labels(const fs::path& file, const Picture& picture) {
  std::string text;
  for (const Picture::Object& object : picture.objects) {
    const double size = picture.pixels.cols;
    const cv::Point2d centre = (object.box.tl() + object.box.br()) / 2;
    std::array<char, 96> line{};
    const int length =
        std::snprintf(line.data(), line.size(), "%d %.6f %.6f %.6f %.6f\n",
                      object.class_index, centre.x / size, centre.y / size,
                      object.box.width / size, object.box.height / size);
    text.append(line.data(), static_cast<size_t>(length));
  }
  write_file(file, text);
}

void write_split(const Options& options, const std::string& split, int count,
                 Draws& draws) {
  const fs::path images = options.folder / "images" / split;
  const fs::path labels = options.folder / "labels" / split;
  for (const fs::path& folder : {images, labels}) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) {
      throw Error("shapes",
                  folder.string() + " cannot be made: " + error.message(),
                  "choose another folder");
    }
  }
  for (int i = 0; i < count; ++i) {
    const Picture picture = draw_picture(options.size, draws);
    std::array<char, 16> name{};
    std::snprintf(name.data(), name.size(), "%05d", i);
    write_file(images / (std::string(name.data()) + ".jpg"),
               codecs::encode_jpeg(picture.pixels, kJpegQuality));
    write_labels(labels / (std::string(name.data()) + ".txt"), picture);
  }
}

void write_data_set(const Options& options) {
  Draws draws(options.seed);
  write_split(options, "train", options.train, draws);
  write_split(options, "val", options.val, draws);
  std::string text =
      "# Drawn by headroom-shapes.\n"
      "path: .\ntrain: images/train\nval: images/val\nnames:\n";
  for (size_t i = 0; i < kClassNames.size(); ++i) {
    text += cat("  ", i, ": ", kClassNames[i], "\n");
  }
  // data.yaml is written last: if it exists, the data set is complete.
  write_file(options.folder / "data.yaml", text);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Draws circles, rectangles and triangles with YOLO labels.");
  app.add_option("DIR", options.folder, "where to; made if it is not there")
      ->required();
  app.add_option("--train", options.train, "training images")
      ->check(CLI::Range(1, 99999))
      ->capture_default_str();
  app.add_option("--val", options.val, "validation images")
      ->check(CLI::Range(1, 99999))
      ->capture_default_str();
  app.add_option("--size", options.size, "side of an image in pixels")
      ->check(CLI::Range(32, 4096))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "another seed, another data set")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : static_cast<int>(ExitCode::kRequest);
  }
  write_data_set(options);
  std::cout << (options.folder / "data.yaml").string() << "\n";
  return 0;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  try {
    return headroom::run(argc, argv);
  } catch (const headroom::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.exit_code());
  }
}
