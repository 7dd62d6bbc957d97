// The plugin gets thousands of damaged GeoTIFFs. Each gives a place or a
// reason. The coordinates of a map with a place are finite or missing.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/mutation.h"
#include "tests/worker/maps/map_files.h"
#include "worker/data/codecs/geo_tags.h"
#include "worker/data/codecs/image_writer.h"

namespace headroom::maps {
namespace {

namespace fs = std::filesystem;

class SlowMapMutation : public ::testing::Test {
 protected:
  SlowMapMutation() : api_(built_plugin()) {
    add_sample("north.tif", {500'000, 0.25, 0, 5'400'000, 0, -0.25},
               "EPSG:32633");
    add_sample("turned.tif", {500'000, 0.25, 0.05, 5'400'000, 0.04, -0.2},
               "EPSG:32633");
    add_sample("degrees.tif", {13.25, 1e-6, 0, 52.5, 0, -2e-6}, "EPSG:4326");
    add_sample(
        "own.tif", {0, 1, 0, 0, 0, -1},
        "+proj=lcc +lat_1=49 +lat_2=44 +lat_0=46.5 +lon_0=3 +x_0=7e5 "
        "+y_0=6.6e6 +ellps=bessel +towgs84=500,100,400,1,2,3,4 +units=m");
  }

  void add_sample(const std::string& name, const Transform& transform,
                  const std::string& system) {
    const fs::path file = folder_.path() / name;
    write_geotiff(file, picture_, transform, system);
    samples_.push_back(read_bytes(file));
    tags_.push_back(*codecs::read_geo_tags(file));
  }

  void read(const std::string& text) {
    const fs::path file = folder_.write("map.tif", text);
    if (const auto tags = codecs::read_geo_tags(file)) {
      const codecs::GeoTags moved = tags->moved(3, 5);
      ASSERT_FALSE(codecs::encode_tiff_bytes(picture_, &moved).empty());
    }
    std::string reason;
    const auto place = api_.place_of(file.string(), reason);
    ++(place ? sound_ : refused_);
    if (!place) {
      ASSERT_FALSE(reason.empty());
      return;
    }
    for (const char* system : {"OGC:CRS84", "EPSG:3857"}) {
      const auto points = api_.points_in(system, *place, reason = "");
      ASSERT_EQ(points == nullptr, !reason.empty());
      if (points == nullptr) continue;
      if (const auto bounds = points->bounds()) {
        for (const double side : *bounds) ASSERT_TRUE(std::isfinite(side));
      }
      std::vector<double> x = {0, 15, 179.9, -181, 1e300};
      std::vector<double> y = {0, 48, -90, 91, -1e300};
      points->to_pixels(x, y);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_TRUE((std::isfinite(x[i]) && std::isfinite(y[i])) ||
                    (std::isnan(x[i]) && std::isnan(y[i])))
            << x[i] << ", " << y[i];
      }
    }
    const auto layer = api_.make_geojson(reason);
    ASSERT_NE(layer, nullptr) << reason;
    std::string bytes;
    if (layer->begin(*place).empty()) {
      MapBox box;
      box.x2 = box.y2 = 5;
      ASSERT_EQ(layer->write(box).fault, "");
    }
    ASSERT_EQ(layer->finish(bytes), "");
    ASSERT_TRUE(nlohmann::json::accept(bytes));
  }

  const TemporaryFolder folder_;
  const cv::Mat picture_ = test_picture(12, 16, 1);
  MapApi& api_;
  std::vector<std::string> samples_;
  std::vector<codecs::GeoTags> tags_;
  int64_t sound_ = 0, refused_ = 0;
};

// Returns the tags with numbers, keys or lengths that no program writes.
codecs::GeoTags with_hostile_values(codecs::GeoTags tags,
                                    sampling::RandomStream& draws) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr std::array<double, 14> kNumbers = {
      0,          -0.0,
      1,          -1,
      180,        90.0001,
      5e-324,     1e-300,
      1e308,      -1e308,
      1e17,       kInfinity,
      -kInfinity, std::numeric_limits<double>::quiet_NaN()};
  constexpr std::array<uint16_t, 16> kKeys = {
      0,    1,    2,    3,     1024,  1025,  2048,  3072,
      3075, 4096, 4326, 32633, 32767, 34736, 34737, 65535};
  const auto of = [&draws](size_t size) {
    return static_cast<size_t>(draws.below(static_cast<int64_t>(size)));
  };
  const auto change = [&](auto& values, const auto& ends) {
    if (of(6) == 0) return values.resize(of(60), ends[of(ends.size())]);
    if (!values.empty()) values[of(values.size())] = ends[of(ends.size())];
  };
  for (size_t changes = 1 + of(5); changes > 0; --changes) {
    switch (of(7)) {
      case 0:
        change(tags.tie_points, kNumbers);
        break;
      case 1:
        change(tags.pixel_scale, kNumbers);
        break;
      case 2:
        change(tags.transformation, kNumbers);
        break;
      case 3:
        change(tags.key_numbers, kNumbers);
        break;
      case 4:
        tags.key_text = of(2) == 0 ? std::string(of(70'000), '|')
                                   : tags.key_text.substr(0, of(8));
        break;
      default:
        change(tags.keys, kKeys);
        break;
    }
  }
  return tags;
}

TEST_F(SlowMapMutation, TagsOfHostileValues) {
  read(samples_[0]);  // libraries allocate their own memory once
  constexpr uint64_t kEach = 500;
  const BoundedMemory bound;
  for (size_t sample = 0; sample < tags_.size(); ++sample) {
    for (uint64_t i = 0; i < kEach; ++i) {
      sampling::RandomStream draws(13, sample, i,
                                   sampling::RandomPurpose::kSyntheticImage);
      const codecs::GeoTags tags = with_hostile_values(tags_[sample], draws);
      const auto begin = std::chrono::steady_clock::now();
      ASSERT_NO_THROW(read(codecs::encode_tiff_bytes(picture_, &tags)))
          << "sample " << sample << ", damage " << i;
      const std::chrono::duration<double> seconds =
          std::chrono::steady_clock::now() - begin;
      ASSERT_LT(seconds.count(), kLongestSeconds)
          << "sample " << sample << ", damage " << i;
    }
  }
  std::printf("%lld have a place, %lld a reason why not\n",
              static_cast<long long>(sound_), static_cast<long long>(refused_));
  EXPECT_GT(sound_, 300);
  EXPECT_GT(refused_, 300);
}

TEST_F(SlowMapMutation, DamagedDirectoriesAndBytes) {
  const auto read_one = [this](const std::string& text) { read(text); };
  survive(samples_, 300, read_one, with_damaged_tags);
  survive(samples_, 100, read_one);
  EXPECT_GT(sound_, 100);
  EXPECT_GT(refused_, 100);
}

}  // namespace
}  // namespace headroom::maps
