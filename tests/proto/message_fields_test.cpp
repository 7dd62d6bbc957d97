#include "proto/message_fields.h"

#include <gtest/gtest.h>

#include "proto/coordinator_log.pb.h"

namespace headroom::wire {

enum class Colour { kRed, kGreen };

struct Painted {
  std::string text;
  Colour colour = Colour::kRed;
  std::vector<int64_t> sizes = {7};
};

void fields(auto& archive, Either<Painted> auto& painted) {
  archive("reason", painted.text);
  archive("zero_stage", painted.colour, Colour::kGreen);
  archive("stage_begins", painted.sizes);
}

namespace {

TEST(MessageFields, AStructComesBackAsItWas) {
  const Painted green = {
      .text = "a", .colour = Colour::kGreen, .sizes = {1, 2}};
  const auto back = from_message<Painted>(to_message<Plan>(green));
  EXPECT_EQ(back.text, "a");
  EXPECT_EQ(back.colour, Colour::kGreen);
  EXPECT_EQ(back.sizes, green.sizes);
}

TEST(MessageFields, AnEmptyList_ReplacesTheDefault) {
  EXPECT_TRUE(from_message<Painted>(Plan()).sizes.empty());
}

TEST(MessageFields, TextThatIsNotUtf8_IsMadeSo_AndBytesAreLeft) {
  Plan plan;
  MessageWriter{plan}("reason", std::string("a\xff"));
  EXPECT_EQ(plan.reason(), "a?");
  LoggedLoss loss;
  MessageWriter{loss}("last_words", std::string("a\xff"));
  EXPECT_EQ(loss.last_words(), "a\xff");
}

TEST(MessageFields, AnUnknownEnum_IsRefusedWithItsNumber) {
  Plan plan;
  plan.set_zero_stage(2);
  try {
    from_message<Painted>(plan);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.text(), "zero_stage 2 is unknown");
  }
}

TEST(MessageFields, AFieldOfAnotherNameOrType_IsTheProgrammersError) {
  Plan plan;
  MessageWriter writer(plan);
  EXPECT_THROW(writer("resaon", std::string()), CheckFailure);
  EXPECT_THROW(writer("reason", int64_t{1}), CheckFailure);
  EXPECT_THROW(writer("stage_begins", int64_t{1}), CheckFailure);
}

}  // namespace
}  // namespace headroom::wire
