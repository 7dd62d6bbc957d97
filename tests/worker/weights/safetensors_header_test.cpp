// Tests the errors that the reader reports for false headers.
#include "worker/weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "parallel/base/check.h"
#include "tests/support/error_text.h"

namespace headroom::weights {
namespace {

using testing::HasSubstr;

// Empty if the header is accepted.
std::string complaint_of(const std::string& header, uint64_t data_bytes) {
  return error_text([&] {
    parse_safetensors_header(header, data_bytes, "file.safetensors");
  });
}

TEST(SafetensorsHeader, EachKindOfFalseHeaderIsNamed) {
  const auto one = [](const std::string& fields) {
    return "{\"x\":{" + fields + "}}";
  };
  const std::string f32 = R"("dtype":"F32",)";
  const struct {
    std::string header;
    std::size_t data_bytes;
    const char* complaint;
  } kCases[] = {
      {"{}", 0, nullptr},
      {one(f32 + R"("shape":[2],"data_offsets":[0,8])"), 8, nullptr},
      {one(f32 + R"("shape":[0,9],"data_offsets":[0,0])"), 0, nullptr},
      {"[]", 0, "a list where none belongs"},
      {"", 0, "not valid JSON"},
      {"{\"x\"", 0, "not valid JSON"},
      {"{} x", 0, "not valid JSON"},
      {"{\"\xff\":1}", 0, "not valid JSON"},
      {"{\"x\":1}", 0, "a number where none belongs"},
      {"{\"x\":[]}", 0, "a list where none belongs"},
      {"{\"__metadata__\":{\"a\":1}}", 0, "a number where none belongs"},
      {"{\"__metadata__\":{\"a\":{}}}", 0, "an object where none belongs"},
      {one(R"("shape":[2],"data_offsets":[0,8])"), 8, "lacks one of"},
      {one(f32 + R"("data_offsets":[0,8])"), 8, "lacks one of"},
      {one(f32 + R"("shape":[2])"), 8, "lacks one of"},
      {one(f32 + R"("shape":[2],"data_offsets":[0])"), 8, "lacks one of"},
      {one(f32 + R"("shape":[2],"data_offsets":[0,8,9])"), 8, "more than 2"},
      {one(f32 + R"("shape":[2],"shape":[2],"data_offsets":[0,8])"), 8,
       "\"shape\" twice"},
      {one(f32 + R"("shape":[2],"data_offsets":[0,8],"z":1)"), 8,
       "unknown key"},
      {one(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"), 8,
       "unknown dtype"},
      {one(R"("dtype":7,"shape":[2],"data_offsets":[0,8])"), 8,
       "a number where none belongs"},
      {one(f32 + R"("shape":[-2],"data_offsets":[0,8])"), 8,
       "a negative number"},
      {one(f32 + R"("shape":[2.0],"data_offsets":[0,8])"), 8, "a fraction"},
      {one(f32 + R"("shape":[[2]],"data_offsets":[0,8])"), 8,
       "a list where none belongs"},
      {one(f32 + R"("shape":[3],"data_offsets":[0,8])"), 8, "need 12"},
      {one(f32 + R"("shape":[2],"data_offsets":[8,0])"), 8, "bytes [8, 0)"},
      {one(f32 + R"("shape":[2],"data_offsets":[0,16])"), 8, "bytes [0, 16)"},
      {one(f32 + R"("shape":[2],"data_offsets":[4,12])"), 12,
       "begins at byte 4"},
      {one(f32 + R"("shape":[2],"data_offsets":[0,8])"), 9, "9 follow"},
      {one(f32 + R"("shape":[4611686018427387904,4],"data_offsets":[0,0])"), 0,
       "overflows"},
      {one(f32 + R"("shape":[0,4611686018427387904,4],"data_offsets":[0,0])"),
       0, "overflows"},
      {one(f32 + R"("shape":[18446744073709551615],"data_offsets":[0,0])"), 0,
       "a dimension of 18446744073709551615"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
       6, "begins at byte 2"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "\"a\" twice"},
      {R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", 1,
       nullptr},
  };
  for (const auto& test : kCases) {
    const std::string complaint = complaint_of(test.header, test.data_bytes);
    if (test.complaint == nullptr) {
      EXPECT_EQ(complaint, "") << test.header;
      continue;
    }
    EXPECT_THAT(complaint, HasSubstr(test.complaint)) << test.header;
    EXPECT_THAT(complaint, HasSubstr("file.safetensors")) << test.header;
  }
}

TEST(SafetensorsHeader, DeepNestingIsRefusedAtOnce) {
  const std::string deep = "{\"x\":" + std::string(1000000, '[');
  EXPECT_THAT(complaint_of(deep, 0), HasSubstr("a list where"));
}

// A changed byte may still be a valid header (another name, another shape of
// as many elements); then it is read, and its tensors are as large as the data.
TEST(SafetensorsHeader, NoChangedByteOfTheHeaderDoesHarm) {
  const std::string header =
      R"({"__metadata__":{"model":"yolov5n"},)"
      R"("count":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("weight":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
      R"("mask":{"dtype":"BOOL","shape":[3],"data_offsets":[32,35]}}  )";
  const uint64_t data_bytes = 35;
  ASSERT_EQ(complaint_of(header, data_bytes), "");
  std::size_t refused = 0;
  for (std::size_t at = 0; at < header.size(); ++at)
    for (int value = 0; value < 256; ++value) {
      std::string changed = header;
      changed[at] = static_cast<char>(value);
      try {
        uint64_t total = 0;
        for (const SafetensorsEntry& entry :
             parse_safetensors_header(changed, data_bytes, "changed").entries)
          total += entry.end - entry.begin;
        EXPECT_EQ(total, data_bytes);
      } catch (const Error&) {
        ++refused;
      }
    }
  EXPECT_GT(refused, header.size() * 100);
}

}  // namespace
}  // namespace headroom::weights
