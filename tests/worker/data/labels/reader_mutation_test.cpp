// Thousands of damaged files for every reader of a data set, and of models'
// tables: none may crash, hang or ask for memory that its file does not
// justify. What they say is not judged here; that they come back is.
//
// Damage is drawn from a fixed seed, so that a failure is there again. Address
// space is bounded while it runs: a size that a file only claims is a
// std::bad_alloc, and that fails the test.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "configs/yaml/shipped_files.h"
#include "parallel/base/check.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "worker/data/codecs/image.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/data/labels/coco_json.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/labels/folder_index.h"
#include "worker/data/labels/label_file.h"
#include "worker/data/labels/label_reader.h"
#include "worker/data/labels/packing.h"
#include "worker/data/packs/packed_file.h"
#include "worker/data/sampling/random.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr rlim_t kRoomBytes = rlim_t{768} << 20;
constexpr double kLongestSeconds = 20;  // of one file, on a busy machine

// Memory beyond what the process has now, while this lives.
class BoundedMemory {
 public:
  BoundedMemory() {
    ::getrlimit(RLIMIT_AS, &before_);
    std::ifstream pages("/proc/self/statm");
    rlim_t used = 0;
    pages >> used;
    rlimit bound = before_;
    bound.rlim_cur = used * 4096 + kRoomBytes;
    ::setrlimit(RLIMIT_AS, &bound);
  }
  ~BoundedMemory() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

// One to eight of: bytes changed, cut out, repeated, set to extremes, the end
// cut off, a number made huge.
std::string damaged(std::string text, sampling::RandomStream& draws) {
  const int64_t changes = 1 + draws.below(8);
  for (int64_t i = 0; i < changes && !text.empty(); ++i) {
    const auto size = static_cast<int64_t>(text.size());
    const auto at = static_cast<size_t>(draws.below(size));
    const auto length =
        static_cast<size_t>(1 + draws.below(std::min<int64_t>(
                                    64, size - static_cast<int64_t>(at))));
    switch (draws.below(7)) {
      case 0:
        text[at] = static_cast<char>(draws.below(256));
        break;
      case 1:
        text[at] = static_cast<char>(text[at] ^ (1 << draws.below(8)));
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      case 4:
        text.replace(at, length, std::string(length, '\xff'));
        break;
      case 5:
        text.resize(at);
        break;
      default:
        text.insert(at, draws.below(2) == 0 ? "99999999999999999999e999"
                                            : std::string(300, '['));
        break;
    }
  }
  return text;
}

// A table with some of its numbers at an end of what may be written or beyond,
// and some of its layers once more: damage that is still a table.
std::string stretched(std::string text, sampling::RandomStream& draws) {
  constexpr std::array<std::string_view, 11> kEnds = {
      "0", "1", "2", "3", "-1", "31", "100", "1000", "16384", "1e308", "None"};
  constexpr std::string_view kDigits = "0123456789";
  const auto of = [&draws](size_t size) {
    return static_cast<size_t>(draws.below(static_cast<int64_t>(size)));
  };
  const size_t changes = 1 + of(6);
  for (size_t i = 0; i < changes; ++i) {
    const size_t begin = text.find_first_of(kDigits, of(text.size()));
    if (begin == std::string::npos) continue;
    if (draws.below(4) == 0) {
      const size_t line = text.rfind('\n', begin) + 1;
      const std::string layer =
          text.substr(line, text.find('\n', begin) - line);
      for (size_t times = of(80); times > 0; --times)
        text.insert(line, layer + "\n");
      continue;
    }
    size_t end = text.find_first_not_of(kDigits, begin);
    if (end == std::string::npos) end = text.size();
    text.replace(begin, end - begin,
                 draws.below(20) == 0 ? std::string(2000, 'x')
                                      : std::string(kEnds[of(kEnds.size())]));
  }
  return text;
}

// A TIFF whose directories have fields set to ends of what they hold, to other
// fields, or to places in the file, also those of directories.
std::string with_damaged_tags(std::string text, sampling::RandomStream& draws) {
  const bool is_big = text.size() > 16 && text[2] == 43;
  const size_t pointer_bytes = is_big ? 8 : 4;
  const size_t entry_bytes = is_big ? 20 : 12;
  const size_t count_bytes = is_big ? 8 : 2;
  const auto number_at = [&text](size_t at, size_t bytes) {
    uint64_t number = 0;
    if (at <= text.size() && bytes <= text.size() - at) {
      std::memcpy(&number, text.data() + at, bytes);
    }
    return number;
  };
  std::vector<size_t> fields = {pointer_bytes};  // where they lie
  std::vector<uint64_t> values = {
      0, 1, 2, 3, 255, 65'535, INT32_MAX, UINT32_MAX, UINT64_MAX, text.size()};
  uint64_t directory = number_at(pointer_bytes, pointer_bytes);
  for (int page = 0; page < 4 && directory > 0; ++page) {
    values.push_back(directory);
    const uint64_t entries = number_at(directory, count_bytes);
    const size_t first = directory + count_bytes;
    for (size_t i = 0; i < entries && i < 40; ++i) {
      const size_t entry = first + i * entry_bytes;
      fields.insert(fields.end(),
                    {entry, entry + 2, entry + 4, entry + 4 + pointer_bytes});
      values.push_back(number_at(entry, 2));
      values.push_back(number_at(entry + 4 + pointer_bytes, pointer_bytes));
    }
    const size_t next = first + entries * entry_bytes;
    fields.push_back(next);
    directory = number_at(next, pointer_bytes);
  }
  const auto one_of = [&draws](const auto& list) {
    return list[static_cast<size_t>(
        draws.below(static_cast<int64_t>(list.size())))];
  };
  const int64_t changes = 1 + draws.below(4);
  for (int64_t i = 0; i < changes; ++i) {
    const size_t at = one_of(fields);
    const uint64_t value = one_of(values);
    const size_t bytes = draws.below(2) == 0 ? 2 : pointer_bytes;
    if (at <= text.size() && bytes <= text.size() - at) {
      std::memcpy(text.data() + at, &value, bytes);
    }
  }
  return text;
}

using Damage = std::string (*)(std::string text, sampling::RandomStream& draws);

// Runs `read` on `count` damaged forms of each sample.
void survive(const std::vector<std::string>& samples, int count,
             const std::function<void(const std::string&)>& read,
             Damage damage = damaged) {
  for (size_t s = 0; s < samples.size(); ++s) {
    read(samples[s]);  // what libraries set up once is no part of the bound
    const BoundedMemory bound;
    for (int i = 0; i < count; ++i) {
      sampling::RandomStream draws(11, s, static_cast<uint64_t>(i),
                                   sampling::RandomPurpose::kSyntheticImage);
      const std::string text = damage(samples[s], draws);
      const Clock::time_point begin = Clock::now();
      ASSERT_NO_THROW(read(text)) << "sample " << s << ", damage " << i;
      const std::chrono::duration<double> seconds = Clock::now() - begin;
      ASSERT_LT(seconds.count(), kLongestSeconds)
          << "sample " << s << ", damage " << i;
    }
  }
}

// Runs `body`; its refusals are answers.
void allow_refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error&) {
  }
}

class ReaderMutation : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
};

TEST_F(ReaderMutation, LabelFiles) {
  survive({"0 .5 .5 .2 .2\n1 0.1 0.2 0.3 0.4 0.9\n",
           "2 .1 .1 .9 .1 .9 .9 .1 .9\n0 .5 .5 .2 .2\n"},
          3000, [](const std::string& text) {
            const LabelFile file = parse_label_file(text, "x.txt", 3, false);
            for (const BoxLabel& box : file.boxes) {
              ASSERT_GE(box.cx, 0);
              ASSERT_LE(box.cx, 1);
              ASSERT_GT(box.w, 0);
            }
          });
}

TEST_F(ReaderMutation, DataYaml) {
  fs::create_directories(folder_.path() / "images");
  survive({"path: .\ntrain: images\nval: [images]\nnames: {0: a, 1: b}\n",
           "train: images\nval: images\nnc: 2\nnames: ['a', \"b\"]\n"},
          2000, [&](const std::string& text) {
            const fs::path file = folder_.write("data.yaml", text);
            allow_refusal([&] { configs::load_data_config(file); });
          });
}

// A table is counted as a plan counts it. What it says is short, whatever the
// file has in its place.
TEST_F(ReaderMutation, ModelTables) {
  std::vector<std::string> samples = {read_bytes(
      HEADROOM_SOURCE_DIR "/tests/support/models/many_modules.yaml")};
  for (const char* name : {"yolov5n", "yolov5s-p7", "yolov5s-mobilenetv3"})
    samples.push_back(yaml::file_or_shipped(name, "model", "model").text);
  // Each layer of which may stand there any number of times.
  samples.push_back(
      "nc: 2\ndepth_multiple: 1\nwidth_multiple: 1\nanchors: [[1, 1]]\n"
      "backbone:\n- [-1, 1, Conv, [16, 3]]\n- [[-1, -1], 1, Concat, [1]]\n"
      "- [-1, 3, C3, [16]]\nhead:\n- [-1, 1, Conv, [8]]\n"
      "- [[-1], 1, Detect, [nc, anchors]]\n");
  int sound = 0, refused = 0;
  const auto read = [&](const std::string& text) {
    try {
      const layers::ModelTable table =
          layers::parse_model_table(text, "m.yaml");
      int64_t parameters = 0;
      for (const layers::LayerCost& layer : layers::layer_costs(table)) {
        ASSERT_GE(layer.parameters, 0);
        ASSERT_GE(layer.kept_elements_per_pixel, 0);
        ASSERT_GT(layer.channels, 0);
        parameters += layer.parameters;
      }
      ASSERT_GE(parameters, 0);
      layers::parse_model_table(layers::model_table_text(table), "again.yaml");
      ++sound;
    } catch (const Error& error) {
      ASSERT_LT(std::string(error.what()).size(), 600U) << error.what();
      ++refused;
    }
  };
  survive(samples, 2000, read);
  survive(samples, 2000, read, stretched);
  EXPECT_GT(sound, 1000);
  EXPECT_GT(refused, 1000);
}

TEST_F(ReaderMutation, CocoJson) {
  const std::string truth =
      R"({"info": {"a": [1, {"b": null}]}, "images": [{"id": 1, "file_name":
"1.bmp", "width": 16, "height": 12}], "categories": [{"id": 3, "name": "a"}],
"annotations": [{"id": 5, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3.5,
4e0], "area": 14, "iscrowd": 0, "segmentation": [[1, 1, 2, 2, 3, 3]]}]})";
  survive({truth}, 4000, [&](const std::string& text) {
    const fs::path file = folder_.write("t.json", text);
    allow_refusal([&] { read_coco_annotations(file); });
  });
  survive({R"([{"image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4], "score":
0.5}])"},
          2000, [&](const std::string& text) {
            const fs::path file = folder_.write("d.json", text);
            allow_refusal([&] { read_coco_results(file); });
          });
}

TEST_F(ReaderMutation, VocXml) {
  folder_.write("voc/JPEGImages/1.bmp", encode_bmp(test_picture(12, 16, 1)));
  folder_.write("voc/ImageSets/Main/train.txt", "1\n");
  folder_.write("voc/ImageSets/Main/val.txt", "1\n");
  survive({"<?xml version=\"1.0\"?>\n<!-- a --><annotation>\n<object><name>a"
           "</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>5.5</xmax><ymax>9"
           "</ymax></bndbox></object>&lt;</annotation>"},
          3000, [&](const std::string& text) {
            folder_.write("voc/Annotations/1.xml", text);
            allow_refusal([&] {
              const configs::DataConfig config =
                  configs::load_data_config(folder_.path() / "voc");
              index_dataset(config, Split::kTrain);
            });
          });
}

TEST_F(ReaderMutation, Images) {
  const cv::Mat picture = test_picture(40, 56, 3);
  std::vector<std::string> samples = {encode_bmp(picture), encode_png(picture),
                                      encode_png(picture, {true, true, 6}),
                                      encode_webp(picture),
                                      encode_webp(picture, false)};
  JpegForm form;
  samples.push_back(encode_jpeg(picture, form));
  form.progressive = true;
  form.orientation = 6;
  samples.push_back(encode_jpeg(picture, form));
  form = {};
  form.components = 4;
  samples.push_back(encode_jpeg(picture, form));
  for (const bool tiled : {false, true}) {
    TiffForm tiff;
    tiff.compression = COMPRESSION_LZW;
    tiff.tiled = tiled;
    tiff.big = tiled;
    const fs::path file = folder_.path() / "x.tif";
    write_tiff(file, picture, tiff);
    samples.push_back(read_bytes(file));
  }
  codecs::ImageLimits limits;
  limits.max_pixels = 1'000'000;
  survive(samples, 400, [&](const std::string& text) {
    const fs::path file = folder_.write("image", text);
    codecs::inspect_image(file, limits);
    const codecs::ImageResult result = codecs::decode_image(file, limits);
    ASSERT_EQ(result.ok(), !result.pixels.empty());
  });
}

TEST_F(ReaderMutation, ImagesOfBands) {
  std::vector<std::string> samples;
  for (const uint16_t compression : {COMPRESSION_NONE, COMPRESSION_LZW}) {
    for (const bool planar : {false, true}) {
      for (const bool tiled : {false, true}) {
        BandForm form;
        form.compression = compression;
        form.planar = planar;
        form.tiled = tiled;
        form.big = planar;
        const fs::path file = folder_.path() / "bands.tif";
        write_bands(file, test_bands(23, 41, 5, 1), form);
        samples.push_back(read_bytes(file));
      }
    }
  }
  survive(samples, 400, [&](const std::string& text) {
    const fs::path file = folder_.write("image", text);
    for (const int bands : {5, codecs::kAnyBands, codecs::kColours}) {
      codecs::ImageLimits limits;
      limits.max_pixels = 1'000'000;
      limits.bands = bands;
      codecs::inspect_image(file, limits);
      codecs::inspect_streamed(file, limits);
      const codecs::ImageResult result = codecs::decode_image(file, limits);
      ASSERT_EQ(result.ok(), !result.pixels.empty());
      if (result.ok() && bands != codecs::kAnyBands) {
        ASSERT_EQ(result.pixels.channels(), bands);
      }
    }
  });
}

TEST_F(ReaderMutation, TiffDirectories) {
  std::vector<std::string> samples;
  for (const bool big : {false, true}) {
    for (const bool tiled : {false, true}) {
      TiffForm form{.compression = COMPRESSION_LZW, .tiled = tiled, .big = big};
      const fs::path file = folder_.path() / "pages.tif";
      fs::remove(file);
      for (int page = 0; page < 3; ++page) {
        write_tiff(file, test_picture(40 + page, 56, 3), form);
        form.appended = true;
      }
      samples.push_back(read_bytes(file));
    }
  }
  codecs::ImageLimits limits;
  limits.max_pixels = 1'000'000;
  int64_t sound = 0, refused = 0;
  const auto read = [&](const std::string& text) {
    const fs::path file = folder_.write("image.tif", text);
    for (const char* page : {"", "#3"}) {
      const std::string path = file.string() + page;
      codecs::inspect_image(path, limits);
      const codecs::ImageResult result = codecs::decode_image(path, limits);
      ASSERT_EQ(result.ok(), !result.pixels.empty());
      ++(result.ok() ? sound : refused);
    }
  };
  survive(samples, 700, read, with_damaged_tags);
  EXPECT_GT(sound, 500);
  EXPECT_GT(refused, 500);
}

class IndexMutation : public ReaderMutation {
 protected:
  static constexpr int kImages = 300;

  void SetUp() override { files_ = write_data_set(folder_, kImages); }
  configs::DataConfig files_;
};

TEST_F(IndexMutation, PacksAndTheirIndexes) {
  PackingRequest request;
  request.output = folder_.path() / "packs";
  files_.val = files_.train;
  pack_data(files_, request);
  const configs::DataConfig packed = configs::load_data_config(request.output);
  const auto read = [&](const fs::path& damaged, const std::string& text) {
    std::ofstream(damaged, std::ios::binary) << text;
    allow_refusal([&] {
      const Dataset dataset = index_dataset(packed, Split::kTrain).dataset;
      ASSERT_LE(dataset.size(), kImages);
      for (int64_t i = 0; i < dataset.size(); i += 30) {
        const auto file = packs::read_packed(dataset.path(i));
        ASSERT_TRUE(file);
        ASSERT_EQ(file->error.empty(), !file->bytes.empty());
      }
    });
  };
  for (const char* name : {"train.index", "train-00000.tar"}) {
    const fs::path file = request.output / name;
    const std::string sound = read_bytes(file);
    survive({sound}, 2500, [&](const std::string& text) { read(file, text); });
    std::ofstream(file, std::ios::binary) << sound;
  }
}

// Whatever is damaged, the data set is the one that the files are.
TEST_F(IndexMutation, IndexesOfFolders) {
  std::this_thread::sleep_for(FolderIndex::kYoung +
                              std::chrono::milliseconds(100));
  IndexOptions options;
  options.kept_in = folder_.path() / "kept";
  const auto scan = [&] {
    return index_dataset(files_, Split::kTrain, options).dataset.digest();
  };
  const uint64_t digest = scan();
  const fs::path file =
      index_place(options.kept_in, files_, Split::kTrain, {}).file;
  survive({read_bytes(file)}, 2500, [&](const std::string& text) {
    std::ofstream(file, std::ios::binary) << text;
    ASSERT_EQ(scan(), digest);
  });
}

}  // namespace
}  // namespace headroom::labels
