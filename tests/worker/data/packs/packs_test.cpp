// Packs give the same data set as the files. Damage in a pack is found and
// named, and loses no other image.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/data/refusal.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/packing.h"
#include "worker/data/labels/verification.h"
#include "worker/data/packs/pack_index.h"
#include "worker/data/packs/pack_writer.h"
#include "worker/data/packs/packed_file.h"
#include "worker/data/packs/tar_format.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void overwrite(const fs::path& file, uint64_t at, const std::string& bytes) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(at));
  stream << bytes;
}

class Packs : public ::testing::Test {
 protected:
  // Some twenty images in several packs, as files and packed.
  void SetUp() override {
    files_ = write_data_set(folder_, 20);
    files_.val = files_.train;
    write_packs();
  }

  void write_packs() {
    fs::remove_all(packs_);
    PackingRequest request;
    request.output = packs_;
    request.shard_bytes = 20'000;
    splits_ = pack_data(files_, request);
    packed_ = configs::load_data_config(packs_);
  }

  fs::path index() const { return packs_ / "train.index"; }
  IndexedDataset indexed() const {
    return index_dataset(packed_, Split::kTrain);
  }

  const TemporaryFolder folder_;
  configs::DataConfig files_, packed_;
  const fs::path packs_ = folder_.path() / "packs";
  std::vector<PackedSplit> splits_;
};

TEST_F(Packs, AreTheDataSetThatWasPacked) {
  IndexOptions options;
  options.keep_outlines = true;
  const IndexedDataset files = index_dataset(files_, Split::kTrain, options);
  const IndexedDataset packed = index_dataset(packed_, Split::kTrain, options);
  ASSERT_EQ(packed.dataset.size(), 20);
  ASSERT_EQ(files.dataset.size(), 20);
  EXPECT_GT(splits_.front().shards, 2);
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(packed.dataset.image_size(i), files.dataset.image_size(i)) << i;
    EXPECT_TRUE(
        std::ranges::equal(packed.dataset.labels(i), files.dataset.labels(i)))
        << i;
    EXPECT_TRUE(same_pixels(codecs::decode_image(packed.dataset.path(i)).pixels,
                            codecs::decode_image(files.dataset.path(i)).pixels))
        << packed.dataset.path(i);
  }
  EXPECT_EQ(packed.dataset.digest(), files.dataset.digest());
  EXPECT_EQ(packed.report.lines(5), files.report.lines(5));
  EXPECT_EQ(count_boxes(packed_, Split::kTrain, options).boxes,
            count_boxes(files_, Split::kTrain, options).boxes);
}

TEST_F(Packs, KeepOutlines) {
  folder_.write("images/train/0.bmp", encode_bmp(test_picture(40, 50, 3)));
  folder_.write("labels/train/0.txt",
                "1 .1 .1 .5 .2 .3 .75\n0 .5 .5 .25 .25\n2 .5 .5 .9 .5 .9 .9\n");
  write_packs();
  IndexOptions options;
  options.keep_outlines = true;
  const Dataset files = index_dataset(files_, Split::kTrain, options).dataset;
  const Dataset packed = index_dataset(packed_, Split::kTrain, options).dataset;
  EXPECT_EQ(packed.digest(), files.digest());
  EXPECT_EQ(packed.num_polygons(), 2);
  bool found = false;
  for (int64_t i = 0; i < files.size(); ++i) {
    for (size_t box = 0; box < files.labels(i).size(); ++box) {
      const auto outline = files.outlines(i).of(box);
      found |= !outline.empty();
      EXPECT_TRUE(std::ranges::equal(packed.outlines(i).of(box), outline));
    }
  }
  EXPECT_TRUE(found);
}

TEST_F(Packs, OneClassCountsAsInTheFiles) {
  IndexOptions options;
  options.single_cls = true;
  EXPECT_EQ(index_dataset(packed_, Split::kTrain, options).dataset.digest(),
            index_dataset(files_, Split::kTrain, options).dataset.digest());
}

// Any program that reads tar can read the packs, long names included.
TEST(TarFormat, IsReadByTar) {
  const TemporaryFolder folder;
  const std::string long_name = "images/" + std::string(150, 'n') + ".bin";
  std::string archive;
  for (const auto& [name, bytes] :
       {std::pair<std::string, std::string>{"a.txt", "hello"},
        {long_name, std::string(700, 'x')},
        {"empty", ""}}) {
    archive += packs::tar_header(name, bytes.size()) + bytes +
               packs::tar_padding(bytes.size());
  }
  folder.write("a.tar", archive + packs::tar_end());
  const std::string command = "tar -xf " + (folder.path() / "a.tar").string() +
                              " -C " + folder.path().string() + " 2>&1";
  std::FILE* const pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string said;
  for (int byte = std::getc(pipe); byte != EOF; byte = std::getc(pipe)) {
    said += static_cast<char>(byte);
  }
  EXPECT_EQ(pclose(pipe), 0) << said;
  EXPECT_EQ(said, "");
  EXPECT_EQ(read_bytes(folder.path() / "a.txt"), "hello");
  EXPECT_EQ(read_bytes(folder.path() / long_name), std::string(700, 'x'));
  EXPECT_EQ(read_bytes(folder.path() / "empty"), "");
}

TEST_F(Packs, DamagedBytesCostTheirImage) {
  const auto pack = packs::read_pack(index());
  const packs::IndexedImage& place = pack.index->image(7);
  overwrite(pack.index->shard(place.shard), place.offset + place.bytes / 2,
            "\x5a");
  const Dataset dataset = indexed().dataset;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const codecs::ImageResult image = codecs::decode_image(dataset.path(i));
    EXPECT_EQ(image.ok(), i != 7) << image.reason;
    if (i != 7) continue;
    EXPECT_EQ(image.reason, "its bytes in " +
                                pack.index->shard(place.shard).string() +
                                " are damaged");
  }
  const auto verified = verify_data(packed_, {});
  EXPECT_EQ(verified.front().report.images, 19);
  EXPECT_THAT(
      verification_text(verified, false),
      HasSubstr("its bytes in " + pack.index->shard(place.shard).string() +
                " are damaged"));
}

TEST_F(Packs, AShardThatIsCutOffOrMissingCostsItsMissingImages) {
  const auto pack = packs::read_pack(index());
  ASSERT_GT(pack.index->num_shards(), 2);
  std::vector<int64_t> in_shard(static_cast<size_t>(pack.index->num_shards()));
  uint64_t last_end = 0;  // end of the first shard's last image
  for (int64_t i = 0; i < 20; ++i) {
    const packs::IndexedImage& image = pack.index->image(i);
    ++in_shard[image.shard];
    if (image.shard == 0) last_end = image.offset + image.bytes;
  }
  const fs::path first = pack.index->shard(0), second = pack.index->shard(1);
  fs::resize_file(first, fs::file_size(first) - 600);  // the archive's end
  EXPECT_EQ(indexed().dataset.size(), 20);
  EXPECT_THAT(to_string(indexed().report.faults.at(0)),
              HasSubstr("all its images are there"));
  fs::resize_file(first, last_end - 1);
  fs::remove(second);
  const IndexedDataset result = indexed();
  EXPECT_EQ(result.dataset.size(), 20 - 1 - in_shard[1]);
  ASSERT_EQ(result.report.faults.size(), 2u);
  EXPECT_THAT(to_string(result.report.faults[0]),
              ::testing::AllOf(HasSubstr(first.string() + " has "),
                               HasSubstr("1 image and their boxes left out")));
  EXPECT_THAT(to_string(result.report.faults[1]),
              HasSubstr(second.string() + " cannot be read (No such file"));
  EXPECT_EQ(static_cast<int64_t>(result.undecodable.size()), 1 + in_shard[1]);
}

TEST_F(Packs, ADamagedEntryCostsItsImage) {
  const auto pack = packs::read_pack(index());
  const size_t images = 64 + 16 * static_cast<size_t>(pack.index->num_shards());
  overwrite(index(), images + 80 * 5 + 3, "\x11");  // the sixth image's offset
  const IndexedDataset result = indexed();
  EXPECT_EQ(result.dataset.size(), 19);
  ASSERT_EQ(result.report.faults.size(), 1u);
  EXPECT_THAT(to_string(result.report.faults[0]),
              HasSubstr("its entry in " + index().string() + " is damaged"));
}

// Verification also checks bytes that only other programs read: file names.
TEST_F(Packs, VerifyReadsTheBytesBetweenTheImages) {
  overwrite(packs_ / "train-00000.tar", 3, "Q");  // the first file's name
  const auto verified = verify_data(packed_, {});
  EXPECT_EQ(verified.front().report.images, 20);
  ASSERT_EQ(verified.front().report.faults.size(), 1u);
  EXPECT_THAT(to_string(verified.front().report.faults[0]),
              HasSubstr("train-00000.tar is not what was written"));
}

TEST_F(Packs, KeepBoxesThatStickOutByTheirRounding) {
  folder_.write("images/train/0.bmp", encode_bmp(test_picture(40, 50, 3)));
  folder_.write("labels/train/0.txt", "0 .5 .5 1.000001 1.000001\n");
  write_packs();
  EXPECT_EQ(indexed().dataset.size(),
            index_dataset(files_, Split::kTrain).dataset.size());
  EXPECT_TRUE(packs::read_pack(index()).damaged.empty());
}

TEST_F(Packs, WithOneClassTwoBoxesInOnePlaceAreOne) {
  folder_.write("images/train/0.bmp", encode_bmp(test_picture(40, 50, 3)));
  folder_.write("labels/train/0.txt", "0 .5 .5 .2 .2\n1 .5 .5 .2 .2\n");
  write_packs();
  IndexOptions options;
  options.single_cls = true;
  EXPECT_EQ(index_dataset(packed_, Split::kTrain, options).dataset.digest(),
            index_dataset(files_, Split::kTrain, options).dataset.digest());
}

TEST_F(Packs, AFileThatIsNoIndexIsRefusedInOneLine) {
  const std::string sound = read_bytes(index());
  const auto refused = [&](const std::string& bytes) {
    std::ofstream(index(), std::ios::binary) << bytes;
    return refusal_of([&] { indexed(); });
  };
  EXPECT_THAT(refused(""), HasSubstr("is no index of packs: it has 0 bytes"));
  EXPECT_THAT(refused(std::string(500, 'x')),
              HasSubstr("is no index of packs"));
  EXPECT_THAT(refused(sound.substr(0, sound.size() - 1)),
              HasSubstr("but its header says "));
  std::string damaged = sound;
  damaged[20] ^= 1;
  EXPECT_THAT(refused(damaged), HasSubstr("has a damaged header"));
  damaged = sound;
  damaged[8] = 9;
  EXPECT_THAT(refused(damaged), HasSubstr("is an index of version 9, not 1"));
  fs::remove(index());
  fs::create_directory(index());
  EXPECT_THAT(refusal_of([&] { packs::read_pack(index()); }),
              HasSubstr(" is no file"));
}

// Users have files of this layout, so a change of it needs another version.
TEST_F(Packs, TheIndexHasTheLayoutOfTheFirstVersion) {
  const std::string bytes = read_bytes(index());
  EXPECT_EQ(bytes.substr(0, 16), std::string("HRPACK\r\n\1\0\0\0\0\0\0\0", 16));
  struct {
    uint64_t shards, images, name_bytes, boxes, points;
  } count{};
  std::memcpy(&count, bytes.data() + 16, sizeof count);
  const auto pack = packs::read_pack(index());
  EXPECT_EQ(count.shards, static_cast<uint64_t>(pack.index->num_shards()));
  EXPECT_EQ(count.images, 20u);
  EXPECT_EQ(count.boxes, pack.labels.boxes.size());
  EXPECT_EQ(bytes.size(), 64 + 16 * count.shards + (80 + 4) * count.images +
                              count.name_bytes + 24 * count.boxes +
                              8 * count.points);
  const size_t images = 64 + 16 * count.shards;
  packs::IndexedImage first;
  std::memcpy(&first, bytes.data() + images, sizeof first);
  EXPECT_EQ(bytes.substr(images + 80 * count.images, first.name_bytes),
            pack.index->name(0));
}

// An index that somebody else wrote must not name a file outside of its folder.
TEST_F(Packs, NamesThatLeadOutAreDamage) {
  for (const std::string name : {"../../etc/passwd", "/etc/passwd"}) {
    packs::IndexedImage image;
    image.bytes = 4;
    image.height = image.width = 4;
    packs::IndexPart content;
    content.shards = {{4, 0}};
    content.add(name, image, {});
    content.images[0].check = packs::check_of(name, content.images[0], {});
    content.order_names();
    write_whole_file(index(), packs::index_bytes(content));
    EXPECT_EQ(packs::read_pack(index()).damaged, std::vector<int64_t>{0});
  }
}

// An index may be changed in any way: the reader does not crash, it loses no
// more images than were damaged, and the images that it returns have their
// original pixels and boxes.
TEST_F(Packs, MutatedIndexesAreVerdicts) {
  const std::string sound = read_bytes(index());
  const IndexedDataset whole = indexed();
  std::vector<cv::Mat> pictures;
  for (int64_t i = 0; i < 20; ++i) {
    pictures.push_back(codecs::decode_image(whole.dataset.path(i)).pixels);
  }
  std::mt19937_64 random(17);
  int64_t refused = 0, left_out = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = sound;
    const auto changes = static_cast<int64_t>(random() % 4 + 1);
    for (int64_t i = 0; i < changes; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    std::ofstream(index(), std::ios::binary) << bytes;
    try {
      const Dataset dataset = indexed().dataset;
      ASSERT_GE(dataset.size(), 20 - changes) << round;
      if (dataset.size() < 20) ++left_out;
      for (int64_t i = 0, j = 0; i < dataset.size(); ++i, ++j) {
        const fs::path path = dataset.path(i);
        while (whole.dataset.path(j) != path) ASSERT_LT(++j, 20) << path;
        ASSERT_TRUE(
            std::ranges::equal(dataset.labels(i), whole.dataset.labels(j)))
            << round;
        if (round % 50 != 0) continue;
        ASSERT_TRUE(same_pixels(codecs::decode_image(path).pixels,
                                pictures[static_cast<size_t>(j)]))
            << path;
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(left_out, 300);
}

// Any change in a pack loses only the images whose bytes it changed.
TEST_F(Packs, MutatedPacksAreVerdicts) {
  const fs::path shard = packs_ / "train-00000.tar";
  const std::string sound = read_bytes(shard);
  const auto pack = packs::read_pack(index());
  std::mt19937_64 random(18);
  for (int round = 0; round < 200; ++round) {
    std::string bytes = sound;
    const size_t at = random() % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 + random() % 255));
    std::ofstream(shard, std::ios::binary) << bytes;
    for (int64_t i = 0; i < 20; ++i) {
      const packs::IndexedImage& image = pack.index->image(i);
      if (image.shard != 0) continue;
      const bool is_struck =
          at >= image.offset && at < image.offset + image.bytes;
      const auto file = packs::read_packed(pack.index->path(i));
      ASSERT_TRUE(file);
      ASSERT_EQ(file->error.empty(), !is_struck) << file->error;
    }
  }
}

TEST_F(Packs, MissingPathsGiveTheReason) {
  indexed();
  EXPECT_EQ(packs::read_packed(packs_ / "train-00000.tar" / "nothing")->error,
            "is not in " + index().string());
  folder_.write("plain.tar", "x");
  EXPECT_THAT(packs::read_packed(folder_.path() / "plain.tar" / "a.jpg")->error,
              HasSubstr("has no index beside it"));
  folder_.write("folder.tar/a.bmp",
                "x");  // a folder with the name of an archive is no archive
  EXPECT_FALSE(packs::read_packed(folder_.path() / "folder.tar/a.bmp"));
}

TEST(Patience, RetriesTransientFaults) {
  int calls = 0;
  const auto failing = [&calls](int error, int until) {
    return [&calls, error, until] {
      errno = error;
      return ++calls < until ? -1 : 7;
    };
  };
  EXPECT_EQ(packs::with_patience(failing(EIO, 3)), 7);
  EXPECT_EQ(calls, 3);
  calls = 0;
  EXPECT_EQ(packs::with_patience(failing(ENOENT, 3)), -1);
  EXPECT_EQ(calls, 1);
  calls = 0;
  EXPECT_EQ(packs::with_patience(failing(ETIMEDOUT, 100)), -1);
  EXPECT_EQ(calls, 4);
  char byte = 0;
  EXPECT_EQ(packs::read_at(-1, 0, &byte, 1), 0u);
  EXPECT_EQ(errno, EBADF);
}

TEST_F(Packs, TwoImagesOfOneStemKeepTheirOwnLabels) {
  folder_.write("images/train/twin.bmp", encode_bmp(test_picture(9, 9, 1)));
  folder_.write("images/train/twin.png",
                read_bytes(folder_.path() / "images/train/twin.bmp"));
  folder_.write("labels/train/twin.txt", "0 .5 .5 .2 .2\n");
  write_packs();
  std::string all;
  for (const auto& file : fs::directory_iterator(packs_)) {
    if (file.path().extension() == ".tar") all += read_bytes(file.path());
  }
  for (const char* name : {"twin.txt", "twin.png.txt"}) {
    EXPECT_NE(all.find(name), std::string::npos) << name;
  }
}

TEST_F(Packs, AClassThatNamesDoNotHaveIsRefused) {
  std::ofstream(packs_ / "data.yaml")
      << "names: [a]\ntrain: train.index\nval: val.index\n";
  packed_ = configs::load_data_config(packs_);
  EXPECT_THAT(refusal_of([&] { indexed(); }),
              HasSubstr("but names in " + (packs_ / "data.yaml").string() +
                        " has 1 class"));
}

TEST(PackedName, StaysBelowThePacks) {
  EXPECT_EQ(packed_name("/d/images/a.jpg", "/d"), "images/a.jpg");
  EXPECT_EQ(packed_name("/d/images/a.jpg", "/d/yaml"), "images/a.jpg");
  EXPECT_EQ(packed_name("/x/a.jpg", "/d/e"), "x/a.jpg");
}

TEST_F(Packs, TwoImagesOfOneNameAreRefused) {
  const TemporaryFolder folder;
  for (const std::string name : {"images/a.bmp", "yaml/images/a.bmp"}) {
    folder.write(name, encode_bmp(test_picture(9, 9, 1)));
  }
  folder.write("labels/a.txt", "0 .5 .5 .2 .2\n");
  configs::DataConfig config = data_config(folder, folder.path() / "images");
  config.file = folder.path() / "yaml/data.yaml";
  config.train.push_back(folder.path() / "yaml/images");
  PackingRequest request;
  request.output = folder.path() / "packs";
  EXPECT_THAT(
      refusal_of([&] { pack_data(config, request); }, ExitCode::kRequest),
      HasSubstr("two images would have the name images/a.bmp"));
  EXPECT_FALSE(fs::exists(request.output));
}

}  // namespace
}  // namespace headroom::labels
