#include "parallel/base/binary_record.h"

#include <gtest/gtest.h>

#include <vector>

namespace headroom {
namespace {

TEST(BinaryRecord, NumbersBeginWithTheirLeastByte) {
  EXPECT_EQ(number_bytes<uint16_t>(0x0102), "\x02\x01");
  EXPECT_EQ(number_bytes<int32_t>(-2), "\xfe\xff\xff\xff");
  const std::string bytes = "ab" + number_bytes<uint64_t>(~0ull - 5);
  EXPECT_EQ(number_at<uint64_t>(bytes, 2), ~0ull - 5);
  EXPECT_EQ(number_at<uint16_t>("\xff\xfe", 0), 0xfeff);
  EXPECT_EQ(number_at<int16_t>("\xff\xff", 0), -1);
  EXPECT_EQ(number_of_bytes(""), 0u);
  EXPECT_EQ(number_of_bytes("\x01\x02\x03"), 0x030201u);
}

TEST(BinaryRecord, ANumberBeyondTheEndIsRefused) {
  EXPECT_ANY_THROW(number_at<uint32_t>("abcdef", 3));
  EXPECT_ANY_THROW(number_at<uint16_t>("a", 7));
  EXPECT_ANY_THROW(number_of_bytes("123456789"));
}

TEST(BinaryRecord, ValuesAreReadInTheOrderOfWriting) {
  RecordWriter writer;
  const std::vector<double> numbers = {0.5, -3};
  writer.size(numbers);
  for (const double number : numbers) writer.value(number);
  writer.value('x');
  RecordReader reader(writer.bytes());
  std::vector<double> read;
  reader.size(read);
  for (double& number : read) reader.value(number);
  char last = 0;
  reader.value(last);
  EXPECT_EQ(read, numbers);
  EXPECT_EQ(last, 'x');
  EXPECT_ANY_THROW(reader.value(last));
}

TEST(BinaryRecord, ASizeThatTheBytesCannotHoldIsRefused) {
  for (const int64_t size : {int64_t{-1}, int64_t{1} << 60, int64_t{3}}) {
    RecordWriter writer;
    writer.value(size);
    writer.value('a');
    writer.value('b');
    RecordReader reader(writer.bytes());
    std::string text;
    EXPECT_ANY_THROW(reader.size(text)) << size;
  }
}

}  // namespace
}  // namespace headroom
