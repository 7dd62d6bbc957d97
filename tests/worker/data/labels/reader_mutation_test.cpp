// Every reader of data sets and of model tables gets thousands of damaged
// files. It must not crash, hang or allocate memory that the file does not
// justify. The tests check that it returns, not what it returns.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
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
#include "tests/worker/data/fake_maps.h"
#include "tests/worker/data/mutation.h"
#include "worker/data/codecs/image.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/data/labels/coco_json.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/labels/file_list.h"
#include "worker/data/labels/folder_index.h"
#include "worker/data/labels/geojson.h"
#include "worker/data/labels/known_formats.h"
#include "worker/data/labels/label_file.h"
#include "worker/data/labels/label_reader.h"
#include "worker/data/labels/packing.h"
#include "worker/data/packs/packed_file.h"
#include "worker/data/sampling/random.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

// Returns the table with some of its numbers at a limit or beyond, and some of
// its layers repeated. The result is damaged, but still a table.
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

// Label rows as other programs write them. Each object of a file must be
// counted as kept, as dropped or as a crowd.
TEST_F(ReaderMutation, RowsOfOtherPrograms) {
  const ClassRules classes{{"a", "b"}, false};
  survive({"1, .5, .5, .2, .2\n0; .1; .2; .3; .4\n",
           "1 0,5 0,5 0,2 0,2\r0 0,1 0,2 0,3 0,4\r",
           "b .5 .5 .2 .2\na .1 .2 .3 .4\n",
           "b 2.0 17.0 24.0 36.0\n# a\na 64 23 86 41\n",
           "b 0.00 0 -1.58 2 17 24 36 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59\n",
           "gsd:0.1\n2 17 24 17 24 36 2 36 b 0\n",
           "1 .5 .5 .4 .4 .5 .5 2 .4 .4 1 0 0 0 .6 .6 2\n",
           "1 .1 .1 .9 .9\n0 .2 .3 .7 .8\n1 .6 .6 .9 .9\n",
           "1,-1,2,17,22,19,1,1,1.0\n", "4,5,16,10,1,4,0,0\n"},
          1000, [&](const std::string& text) {
            for (const bool has_keypoints : {false, true}) {
              const std::vector<std::string> texts = {text};
              const RowForm form = row_form(texts, has_keypoints);
              const LabelFile file =
                  parse_label_file(text, "x.txt", classes, form, {64, 96});
              ASSERT_EQ(file.objects, static_cast<int64_t>(file.boxes.size()) +
                                          file.crowds + file.dropped);
              for (const BoxLabel& box : file.boxes) {
                ASSERT_GE(box.cx, 0);
                ASSERT_LE(box.cx, 1);
                ASSERT_GT(box.w, 0);
              }
            }
            known_format(text);
          });
}

// Lists in the spellings of several programs.
TEST_F(ReaderMutation, ListsOfImages) {
  folder_.write("images/1.bmp", "x");
  survive({"# a\r\n 'images/1.bmp'\r\n.\\images\\1.bmp\n",
           "data/images/1.bmp\nimages/1.bmp images/1.txt\n",
           "images/1.bmp 1,2,3,4,0 5,6,7,8,1\nC:\\a\\1.bmp\n"},
          700, [&](const std::string& text) {
            const fs::path file = folder_.write("t.txt", text);
            allow_refusal([&] {
              DataReport report;
              list_images({file}, report);
            });
          });
}

// JSON labels of other programs, which are refused with the format's name, and
// an unusual COCO file.
TEST_F(ReaderMutation, OtherFormatsInJson) {
  survive({R"([{"image": "a", "annotations": [{"coordinates": {"x": NaN}}]}])",
           R"({"shapes": [{"label": "a", "points": [[1, -Infinity]]}]})",
           R"({"images": [{"id": 1.0, "file_name": "1.bmp", "width": 8,
"height": 8}], "categories": [{"id": 1, "name": "a"}], "annotations": [
{"image_id": 1.0, "category_id": "1", "bbox": ["1", null, NaN, 4],
"segmentation": [[1, 2, 3, 4, 5, 6]], "ignore": 0}]})"},
          1000, [&](const std::string& text) {
            const fs::path file = folder_.write("t.json", text);
            allow_refusal([&] { read_coco_annotations(file); });
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

// The costs of each table are computed in the same way as for a plan. The text
// of a refusal is short, whatever the file contains.
TEST_F(ReaderMutation, ModelTables) {
  std::vector<std::string> samples = {read_bytes(
      HEADROOM_SOURCE_DIR "/tests/support/models/many_modules.yaml")};
  for (const char* name : {"yolov5n", "yolov5s-p7", "yolov5s-mobilenetv3"})
    samples.push_back(yaml::file_or_shipped(name, "model", "model").text);
  // This table stays valid if any of its layers is repeated.
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
    is_geojson(file);
    allow_refusal([&] { read_coco_annotations(file); });
  });
  survive({R"([{"image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4], "score":
0.5}])"},
          2000, [&](const std::string& text) {
            const fs::path file = folder_.write("d.json", text);
            allow_refusal([&] { read_coco_results(file); });
          });
}

// Damages a GeoJSON in its types, nesting or numbers, so that it is still valid
// JSON.
std::string twisted(std::string text, sampling::RandomStream& draws) {
  const std::array<std::string, 16> kOthers = {
      "null",
      "true",
      "[]",
      "{}",
      "\"a\"",
      "NaN",
      "1e400",
      "-1e308",
      "1e-400",
      "123456789012345678901234567890",
      "[[[[[0, 0]]]]]",
      "[1]",
      R"({"type": "Point", "coordinates": [1, 2]})",
      std::string(5000, '[') + std::string(5000, ']'),
      "\"" + std::string(5000, 'x') + "\"",
      "\"/etc/passwd\""};
  const auto of = [&draws](size_t size) {
    return static_cast<size_t>(draws.below(static_cast<int64_t>(size)));
  };
  const size_t changes = 1 + of(3);
  for (size_t i = 0; i < changes; ++i) {
    // A number, a name, or the content of a bracket.
    const size_t begin = text.find_first_of("0123456789\"[{", of(text.size()));
    if (begin == std::string::npos) continue;
    size_t end = begin + 1;
    if (text[begin] == '[' || text[begin] == '{') {
      int depth = 1;
      while (end < text.size() && depth > 0) {
        if (text[end] == '[' || text[end] == '{') ++depth;
        if (text[end] == ']' || text[end] == '}') --depth;
        ++end;
      }
    } else if (text[begin] == '"') {
      end = text.find('"', end);
      end = end == std::string::npos ? text.size() : end + 1;
    } else {
      end = std::min(text.find_first_not_of("0123456789.-e", end), text.size());
    }
    const std::string piece = text.substr(begin, end - begin);
    switch (draws.below(3)) {
      case 0: {  // repeat the piece many times
        constexpr size_t kMostBytesMore = size_t{1} << 20;
        const size_t most = kMostBytesMore / (piece.size() + 1);
        std::string more;
        for (size_t times = of(std::min<size_t>(300, most + 1)); times > 0;
             --times) {
          more += piece + ",";
        }
        text.insert(begin, more);
        break;
      }
      default:
        text.replace(begin, end - begin, kOthers[of(kOthers.size())]);
        break;
    }
  }
  return text;
}

TEST_F(ReaderMutation, GeoJson) {
  const std::vector<std::string> samples = {
      R"({"type": "FeatureCollection", "crs": {"type": "name", "properties":
{"name": "urn:ogc:def:crs:EPSG::32633"}}, "features": [
{"type": "Feature", "properties": {"class": "a", "image": "1.bmp"}, "geometry":
{"type": "Polygon", "coordinates": [[[1002, 4990], [1010, 4990], [1010, 4980],
[1002, 4980], [1002, 4990]], [[1004, 4988], [1006, 4988], [1006, 4986]]]}},
{"type": "Feature", "properties": {"class": 1, "name": "b"}, "geometry":
{"coordinates": [[[[1002, 4990, 5], [1e3, 4.99e3], [1010, 4980]]],
[[[990, 4990], [1010, 4990], [1010, 4980]]]], "type": "MultiPolygon"}}]})",
      R"({"features": [{"geometry": {"type": "Polygon", "coordinates": [[[1e3,
5e3], [1031, 5e3], [1031, 4953]]]}, "properties": {"class": 2}, "id": 7, "type":
"Feature"}, {"type": "Feature", "properties": null, "geometry": {"type":
"Point", "coordinates": [1, 2]}}], "type": "FeatureCollection"})"};
  const fs::path image =
      folder_.write("images/1.bmp", encode_bmp(test_picture(12, 16, 1)));
  FakeMaps maps(12, 16);
  const ClassRules classes{{"a", "b", "c"}, false};
  const auto reader = open_geojson_files({image.string()}, classes, maps);
  int64_t boxes = 0, refused = 0, faults = 0;
  const auto check = [&](const ImageLabels& labels) {
    ASSERT_EQ(labels.labels.boxes.size(), labels.labels.outlines.size());
    for (const BoxLabel& box : labels.labels.boxes) {
      ASSERT_TRUE(box.class_index >= 0 && box.class_index < 3);
      ASSERT_TRUE(box.cx >= 0 && box.cx <= 1 && box.w > 0 && box.w <= 1);
      ASSERT_TRUE(box.cy >= 0 && box.cy <= 1 && box.h > 0 && box.h <= 1);
    }
    for (const DataFault& fault : labels.labels.faults) {
      ASSERT_FALSE(fault.what.empty());
    }
    boxes += static_cast<int64_t>(labels.labels.boxes.size());
    faults += static_cast<int64_t>(labels.labels.faults.size());
    refused += labels.fault ? 1 : 0;
  };
  const auto read = [&](const std::string& text) {
    check(reader->read_text(0, {12, 16}, "x.geojson", text));
    const fs::path file = folder_.write("all.geojson", text);
    is_geojson(file);
    allow_refusal([&] {
      DataReport report;
      const auto table = open_geojson_labels(file, folder_.path() / "images",
                                             classes, report, maps);
      for (size_t i = 0; i < table->images().size(); ++i) {
        check(table->read(i, {12, 16}));
      }
    });
  };
  survive(samples, 2000, read);
  survive(samples, 2000, read, twisted);
  EXPECT_GT(boxes, 1000);
  EXPECT_GT(faults, 2000);
  EXPECT_GT(refused, 2000);
}

TEST_F(ReaderMutation, GeoJsonOfManyVerticesAndBrackets) {
  std::string many = "[[0, 0]";
  for (int i = 1; i < 1'000'000; ++i) {
    many += ",[" + std::to_string(i) + "," + std::to_string(i % 7) + "]";
  }
  const auto with_coordinates = [](const std::string& coordinates) {
    return R"({"type": "FeatureCollection", "features": [{"type": "Feature",
"properties": {"class": 0}, "geometry": {"type": "Polygon", "coordinates": )" +
           coordinates + "}}]}";
  };
  const BoundedMemory bound;
  EXPECT_EQ(parse_geojson(with_coordinates("[" + many + "]]"))
                .features.at(0)
                .x.size(),
            1'000'000);
  constexpr size_t kDeep = 20'000'000;
  EXPECT_NE(parse_geojson(with_coordinates(std::string(kDeep, '['))).reason,
            "");
  EXPECT_NE(parse_geojson(with_coordinates(std::string(kDeep, '[') +
                                           std::string(kDeep, ']')))
                .features.at(0)
                .fault,
            "");
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
  std::vector<std::string> samples = {
      encode_png(picture, {true, true, 6}),
      encode_jpeg(picture, {.components = 4}),
      encode_jpeg(picture, {.progressive = true, .orientation = 6})};
  for (const auto& [name, bytes] : encodings(picture)) samples.push_back(bytes);
  codecs::ImageLimits limits;
  limits.max_pixels = 1'000'000;
  survive(samples, 250, [&](const std::string& text) {
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
        samples.push_back(
            encode_tiff(test_bands(23, 41, 5, 1), {.compression = compression,
                                                   .tiled = tiled,
                                                   .planar = planar,
                                                   .big = planar}));
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

// After any damage of the index, the data set equals that without an index.
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
