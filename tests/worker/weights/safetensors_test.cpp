// Files are read back as they were written, and false files are refused.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/atomic_file.h"
#include "parallel/base/binary_record.h"
#include "parallel/base/check.h"
#include "tests/support/error_text.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"
#include "worker/weights/safetensors.h"

namespace headroom::weights {
namespace {

using testing::read_bytes;
using testing::TemporaryFolder;

using ::testing::HasSubstr;

class SafetensorsTest : public ::testing::Test {
 protected:
  std::filesystem::path path(const std::string& name) const {
    return folder_.path() / name;
  }

  std::filesystem::path write_bytes(const std::string& bytes) const {
    return folder_.write("bytes.safetensors", bytes);
  }

  static std::string with_header(const std::string& header,
                                 std::size_t data_bytes) {
    return number_bytes(uint64_t{header.size()}) + header +
           std::string(data_bytes, '\1');
  }

  // Empty if the file is read without an error.
  std::string complaint_of(const std::string& bytes) const {
    return error_text([&] { read_safetensors(write_bytes(bytes)); });
  }

  const TemporaryFolder folder_;
};

TEST_F(SafetensorsTest, EveryTypeIsReadBackUnchanged) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const at::ScalarType type :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
        at::kShort, at::kChar, at::kByte, at::kBool})
    tensors.emplace_back(c10::toString(type),
                         at::randint(0, 2, {3, 5}).to(type));
  tensors.emplace_back("scalar", at::tensor(int64_t{7}).reshape({}));
  tensors.emplace_back("empty", at::empty({0, 4}));
  write_safetensors(path("all"), tensors, {{"format", "pt"}, {"ü", "\"x\\"}});

  const Safetensors file = read_safetensors(path("all"));
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(file.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(file.at(name), tensor)) << name;
  }
  EXPECT_EQ(file.metadata.at("format"), "pt");
  EXPECT_EQ(file.metadata.at("ü"), "\"x\\");
  EXPECT_FALSE(std::filesystem::exists(path("all.partial")));
}

TEST_F(SafetensorsTest, MemoryLayoutIsNotStored) {
  const at::Tensor rows = at::arange(2 * 3 * 4 * 5).view({2, 3, 4, 5});
  const at::Tensor last = rows.contiguous(at::MemoryFormat::ChannelsLast);
  write_safetensors(path("rows"), {{"x", rows}}, {});
  write_safetensors(path("last"), {{"x", last}}, {});
  EXPECT_EQ(read_bytes(path("rows")), read_bytes(path("last")));
  EXPECT_TRUE(read_safetensors(path("last")).at("x").is_contiguous());
}

TEST_F(SafetensorsTest, EveryTensorIsAlignedInTheFile) {
  write_safetensors(path("odd"),
                    {{"bytes", at::zeros({3}, at::kByte)},
                     {"half", at::zeros({3}, at::kHalf)},
                     {"long", at::zeros({1}, at::kLong)},
                     {"float", at::zeros({3})}},
                    {});
  EXPECT_EQ(number_at<uint64_t>(read_bytes(path("odd")), 0) % 8, 0u);
  for (const SafetensorsEntry& entry :
       read_safetensors_header(path("odd")).entries)
    EXPECT_EQ(entry.begin % static_cast<uint64_t>(size_of(entry.type)), 0u);
}

TEST_F(SafetensorsTest, TensorsComeBackInAnyOrder) {
  const at::Tensor weight =
      at::rand({4, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor count = at::full({}, 7, at::kLong);
  std::vector<TensorDescription> tensors = {
      {"weight", at::kFloat, {4, 3, 3, 3}}, {"count", at::kLong, {}}};
  order_for_file(tensors);
  EXPECT_EQ(tensors[0].name, "count");  // larger elements first
  SafetensorsWriter writer(path("stream"), tensors, {{"key", "text"}});
  writer.write(count);
  writer.write(weight);
  writer.commit();

  SafetensorsReader reader(path("stream"));
  EXPECT_EQ(reader.header().metadata.at("key"), "text");
  ASSERT_EQ(reader.header().entries.size(), 2u);
  EXPECT_TRUE(at::equal(reader.read(reader.header().entries[1]), weight));
  EXPECT_TRUE(at::equal(reader.read(reader.header().entries[0]), count));
}

TEST_F(SafetensorsTest, AnUnannouncedTensorIsRefused) {
  SafetensorsWriter writer(path("stream"), {{"a", at::kFloat, {2}}}, {});
  EXPECT_THROW(writer.commit(), CheckFailure);
  EXPECT_THROW(writer.write(at::zeros({3})), CheckFailure);
  EXPECT_THROW(writer.write(at::zeros({2}, at::kDouble)), CheckFailure);
}

TEST_F(SafetensorsTest, AnUnfinishedFileDoesNotExist) {
  { SafetensorsWriter writer(path("stream"), {{"a", at::kFloat, {2}}}, {}); }
  EXPECT_FALSE(std::filesystem::exists(path("stream")));
}

TEST_F(SafetensorsTest, AFailedWriteLeavesTheOldFile) {
  write_safetensors(path("kept"), {{"x", at::zeros({2})}}, {});
  const std::string before = read_bytes(path("kept"));
  // A folder in the place of the temporary file makes the write fail, for root
  // as well.
  std::filesystem::create_directories(path("kept.partial"));
  try {
    write_safetensors(path("kept"), {{"x", at::rand({2})}}, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kResource);
    EXPECT_THAT(error.what(), HasSubstr("kept"));
  }
  EXPECT_EQ(read_bytes(path("kept")), before);
}

TEST_F(SafetensorsTest, AFullDiskIsAnError) {
  const FileSizeLimit full(64);
  try {
    write_safetensors(path("full"), {{"x", at::zeros({2})}}, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kResource);
    EXPECT_THAT(error.what(), HasSubstr("full cannot be written"));
  }
  EXPECT_FALSE(std::filesystem::exists(path("full")));
}

TEST_F(SafetensorsTest, DigestIsXxh3OfAllBytes) {
  // XXH3-128 of no bytes, from the algorithm's specification.
  EXPECT_EQ(file_digest(write_bytes("")), "99aa06d3014798d86001c324468d497f");
  const std::string one = file_digest(write_bytes("abc"));
  const std::string other = file_digest(write_bytes("abd"));
  EXPECT_EQ(one.size(), 32u);
  EXPECT_NE(one, other);
  EXPECT_THROW(file_digest(path("absent")), Error);
}

TEST_F(SafetensorsTest, PathsThatAreNoFileAreRefused) {
  EXPECT_THROW(read_safetensors(path("absent")), Error);
  EXPECT_THROW(read_safetensors(folder_.path()), Error);
}

// Opening it would wait for a program that writes to it.
TEST_F(SafetensorsTest, APipeIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_text([&] { read_safetensors(path("pipe")); }),
              ::testing::HasSubstr("is not a file"));
}

TEST_F(SafetensorsTest, AHeaderBeginsWithABrace) {
  for (const char* header : {"", "[]", " {}"})
    EXPECT_THAT(complaint_of(with_header(header, 0)),
                HasSubstr("bytes.safetensors: its header does not begin"));
}

TEST_F(SafetensorsTest, TheLargestHeaderIsCheckedBeforeItIsAllocated) {
  for (const uint64_t length :
       {uint64_t{9}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{7}})
    EXPECT_THAT(complaint_of(number_bytes(length) + "{{{{{{{{"),
                HasSubstr("header claims"));
}

class DamagedSafetensors : public SafetensorsTest {
 protected:
  void SetUp() override {
    write_safetensors(path("good"),
                      {{"weight", at::rand({2, 3})},
                       {"count", at::zeros({}, at::kLong)},
                       {"mask", at::zeros({3}, at::kBool)}},
                      {{"model", "yolov5n"}});
    good_ = read_bytes(path("good"));
    header_bytes_ = number_at<uint64_t>(good_, 0);
  }

  std::string good_;
  uint64_t header_bytes_ = 0;
};

TEST_F(DamagedSafetensors, EveryTruncationIsRefused) {
  for (std::size_t size = 0; size < good_.size(); ++size)
    EXPECT_NE(complaint_of(good_.substr(0, size)), "") << size << " bytes";
  EXPECT_EQ(complaint_of(good_), "");
  EXPECT_NE(complaint_of(good_ + "x"), "");
}

TEST_F(DamagedSafetensors, NoChangedByteOfTheLengthIsAccepted) {
  for (std::size_t at = 0; at < 8; ++at)
    for (const int step : {1, 7, 8, 128}) {
      std::string bytes = good_;
      bytes[at] = static_cast<char>(bytes[at] + step);
      EXPECT_NE(complaint_of(bytes), "") << "byte " << at << " + " << step;
    }
}

TEST_F(DamagedSafetensors, EveryFieldWithEveryWrongValueIsRefused) {
  const auto original = nlohmann::json::parse(good_.substr(8, header_bytes_));
  const std::vector<nlohmann::json> wrong = {nullptr,
                                             true,
                                             -1,
                                             0.5,
                                             1e300,
                                             "",
                                             "F16",
                                             "f32",
                                             {1},
                                             {0, 1, 2},
                                             {},
                                             7,
                                             {{"a", 1}},
                                             nlohmann::json::array(),
                                             18446744073709551615u};
  const std::string data = good_.substr(8 + header_bytes_);
  for (const char* tensor : {"weight", "count", "mask"})
    for (const char* field : {"dtype", "shape", "data_offsets"})
      for (const nlohmann::json& value : wrong) {
        nlohmann::json header = original;
        if (header[tensor][field] == value) continue;
        header[tensor][field] = value;
        // One wrong shape is accepted: `count` with [1] instead of [] has the
        // same single element.
        if (header[tensor]["shape"] == nlohmann::json{1} &&
            std::string(tensor) == "count")
          continue;
        std::string bytes = with_header(header.dump(), 0) + data;
        EXPECT_NE(complaint_of(bytes), "") << header.dump();
      }
}

}  // namespace
}  // namespace headroom::weights
