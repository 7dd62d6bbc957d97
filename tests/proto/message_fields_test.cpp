#include "proto/message_fields.h"

#include <gtest/gtest.h>

#include "proto/coordinator_log.pb.h"

namespace headroom::wire {

enum class Colour { kRed, kGreen };

constexpr Colour last_of(Colour) { return Colour::kGreen; }

struct Painted {
  std::string text;
  Colour colour = Colour::kRed;
  std::vector<int64_t> sizes = {7};
};

void fields(auto& archive, Either<Painted> auto& painted) {
  archive("hostname", painted.text);
  archive("launcher_rank", painted.colour);
  archive("slot_cards", painted.sizes);
}

namespace {

TEST(MessageFields, AStructIsReadBackUnchanged) {
  const Painted green = {
      .text = "a", .colour = Colour::kGreen, .sizes = {1, 2}};
  const auto back = from_message<Painted>(to_message<LoggedNode>(green));
  EXPECT_EQ(back.text, "a");
  EXPECT_EQ(back.colour, Colour::kGreen);
  EXPECT_EQ(back.sizes, green.sizes);
}

TEST(MessageFields, AnEmptyList_ReplacesTheDefault) {
  EXPECT_TRUE(from_message<Painted>(LoggedNode()).sizes.empty());
}

TEST(MessageFields, TextThatIsNotUtf8_IsMadeSo_AndBytesAreLeft) {
  LoggedNode node;
  MessageWriter{node}("hostname", std::string("a\xff"));
  EXPECT_EQ(node.hostname(), "a?");
  LoggedLoss loss;
  MessageWriter{loss}("last_words", std::string("a\xff"));
  EXPECT_EQ(loss.last_words(), "a\xff");
}

TEST(MessageFields, AnUnknownEnum_IsRefusedWithItsNumber) {
  LoggedNode node;
  node.set_launcher_rank(2);
  try {
    from_message<Painted>(node);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.text(), "launcher_rank 2 is unknown");
  }
}

TEST(MessageFields, AFieldOfAnotherNameOrType_IsTheProgrammersError) {
  LoggedNode node;
  MessageWriter writer(node);
  EXPECT_THROW(writer("hostnmae", std::string()), CheckFailure);
  EXPECT_THROW(writer("hostname", int64_t{1}), CheckFailure);
  EXPECT_THROW(writer("slot_cards", int64_t{1}), CheckFailure);
}

}  // namespace
}  // namespace headroom::wire
