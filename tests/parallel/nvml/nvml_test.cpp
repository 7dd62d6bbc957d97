#include "parallel/nvml/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom::nvml {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

Nvml fake() { return Nvml(HEADROOM_FAKE_NVML, CudaEnvironment()); }

Nvml fake_showing(const std::string& visible_devices) {
  return Nvml(HEADROOM_FAKE_NVML, {visible_devices, std::nullopt});
}

// The names of the cards that CUDA numbers 0, 1 and so on.
std::vector<std::string> names_shown(const std::string& visible_devices) {
  std::vector<std::string> names;
  for (const Card& card : fake_showing(visible_devices).cards()) {
    EXPECT_EQ(card.index, static_cast<int>(names.size()));
    names.push_back(card.name);
  }
  return names;
}

template <typename Function>
std::string refusal(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Nvml, ReadsCardsAndTheirProcesses) {
  const Nvml nvml = fake();
  EXPECT_EQ(nvml.reason(), "");
  const std::vector<Card> cards = nvml.cards();
  ASSERT_EQ(cards.size(), 2u);  // one of the three listed cards gives no data
  EXPECT_EQ(cards[0].index, 0);
  EXPECT_EQ(cards[0].name, "Fake H80");
  EXPECT_EQ(cards[0].uuid, "GPU-00000000-0000-0000-0000-000000000000");
  EXPECT_EQ(cards[0].total_bytes, 80 * kGiB);
  EXPECT_EQ(cards[0].reserved_bytes, kGiB);
  EXPECT_EQ(cards[0].used_bytes(), 20 * kGiB);
  ASSERT_EQ(cards[0].processes.size(), 2u);
  EXPECT_EQ(cards[0].processes[1].pid, 4002);
  EXPECT_EQ(cards[0].processes[1].used_bytes, 7 * kGiB);
}

TEST(Nvml, ReadsOlderDrivers) {
  const Card card = fake().cards()[1];
  EXPECT_EQ(card.index, 1);
  EXPECT_EQ(card.nvidia_smi, 2);
  EXPECT_EQ(card.total_bytes, 24 * kGiB);
  EXPECT_EQ(card.reserved_bytes, 0);
  EXPECT_EQ(card.used_bytes(), kGiB);
  ASSERT_EQ(card.processes.size(), 1u);
  EXPECT_EQ(card.processes[0].used_bytes, std::nullopt);
}

TEST(Nvml, ReportsWhyThereIsNoCard) {
  const Nvml absent("/nowhere/libnvidia-ml.so.1");
  EXPECT_TRUE(absent.cards().empty());
  EXPECT_EQ(absent.reason(),
            "there is no NVIDIA driver, which CUDA needs: "
            "/nowhere/libnvidia-ml.so.1 is not here");
  const Nvml broken(HEADROOM_FAKE_NVML_BROKEN);
  EXPECT_TRUE(broken.cards().empty());
  EXPECT_EQ(broken.reason(),
            "the NVIDIA driver does not answer: Driver Not Loaded");
  const Nvml other(HEADROOM_OTHER_LIBRARY);
  EXPECT_TRUE(other.cards().empty());
  EXPECT_THAT(other.reason(), HasSubstr("lacks a function"));
}

TEST(Nvml, ReportsThePrecisionsOfACard) {
  EXPECT_EQ(fake().cards()[0].compute_capability, 90);
  EXPECT_EQ(fake().cards()[1].compute_capability, 0) << "it does not tell";
}

TEST(Nvml, ReportsTheBusAddressOfACard) {
  EXPECT_EQ(fake().cards()[0].bus_address, "0000:3b:00.0");
  EXPECT_EQ(fake().cards()[1].bus_address, "0000:af:00.0");
  const Card part =
      fake_showing("MIG-33333333-3333-3333-3333-333333333333").cards().at(0);
  EXPECT_EQ(part.bus_address, "0000:3b:00.0") << "the whole card's";
}

// If a card is divided, CUDA shows a process its first part, and no whole card.
TEST(Nvml, OfADividedCardOnePartIsShown) {
  setenv("FAKE_NVML_MIG", "1", 1);
  for (const Nvml& nvml : {fake(), fake_showing("1,0"), fake_showing("0")}) {
    const std::vector<Card> cards = nvml.cards();
    ASSERT_EQ(cards.size(), 1u);
    EXPECT_EQ(cards[0].index, 0);
    EXPECT_EQ(cards[0].name, "Fake H80 MIG 1g.10gb");
    EXPECT_EQ(cards[0].total_bytes, 10 * kGiB);
  }
  EXPECT_EQ(fake_showing("1").cards().at(0).name, "Fake A24");
  unsetenv("FAKE_NVML_MIG");
}

TEST(CardUse, ACardInExclusiveUseByOthersIsReported) {
  const auto trouble = [](const char* mode) {
    setenv("FAKE_NVML_MODE", mode, 1);
    const std::string text = trouble_of(fake().cards()[0]);
    unsetenv("FAKE_NVML_MODE");
    return text;
  };
  EXPECT_EQ(trouble("0"), "");
  EXPECT_EQ(trouble("2"),
            "card 0 (Fake H80) is in prohibited mode, in which no process "
            "computes: sudo nvidia-smi -i 0 -c DEFAULT, or name other cards "
            "with --device");
  EXPECT_EQ(trouble("3"),
            "card 0 (Fake H80) is in exclusive mode, and others use 20 GiB "
            "of its 80 GiB (process 4001: 12 GiB, process 4002: 7 GiB): "
            "end that process, or sudo nvidia-smi -i 0 -c DEFAULT, or name "
            "other cards with --device");
}

TEST(CardUse, ProcessesOutsideTheRunAreOthers) {
  const Card card = fake().cards()[0];
  EXPECT_EQ(bytes_of_others(card, {}, 0), 20 * kGiB);
  // Another 1 GiB belongs to no process: it is used by graphics or by a crashed
  // process.
  EXPECT_EQ(bytes_of_others(card, std::vector<int64_t>{4001}, 0), 8 * kGiB);
  EXPECT_EQ(bytes_of_others(card, std::vector<int64_t>{4001, 4002}, 99), kGiB);
  // If the process is in another process namespace, no listed process matches,
  // so our own bytes are subtracted.
  EXPECT_EQ(bytes_of_others(card, std::vector<int64_t>{17}, 5 * kGiB),
            15 * kGiB);
  EXPECT_EQ(bytes_of_others(card, std::vector<int64_t>{17}, 25 * kGiB), 0);
  // The driver lists our process, but does not report its bytes.
  const Card older = fake().cards()[1];
  EXPECT_EQ(bytes_of_others(older, std::vector<int64_t>{4003}, kGiB / 2),
            kGiB / 2);
}

TEST(CardUse, CardsAreNamedByNumber) {
  for (const char* device : {"0", "cuda", "cuda:0"}) {
    const std::vector<Card> cards = cards_asked_for(device, fake());
    ASSERT_EQ(cards.size(), 1u) << device;
    EXPECT_EQ(cards[0].index, 0);
  }
  const std::vector<Card> both = cards_asked_for("1,0", fake());
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].name, "Fake A24");
}

TEST(CardUse, RefusesAbsentCards) {
  const auto ask = [](const std::string& device, const Nvml& nvml) {
    return refusal([&] { cards_asked_for(device, nvml); });
  };
  EXPECT_EQ(ask("2", fake()),
            "[device] --device 2: there is no card 2; here is 0 (Fake H80), 1 "
            "(Fake A24): name one of these");
  EXPECT_EQ(ask("0,0", fake()),
            "[device] --device 0,0: card 0 is named twice: name it once");
  for (const char* device : {"gpu", "0,", "cuda:x", "-1", "0 1"}) {
    EXPECT_THAT(ask(device, fake()),
                HasSubstr("write auto, cpu, all, or cards by number"))
        << device;
  }
  EXPECT_EQ(ask("0", Nvml("libnowhere.so")),
            "[device] --device 0: there is no NVIDIA driver, which CUDA needs: "
            "libnowhere.so is not here: use --device cpu");
}

using Names = std::vector<std::string>;

TEST(VisibleCards, HaveCudasNumbersAndNotTheDrivers) {
  EXPECT_EQ(names_shown("1"), Names({"Fake A24"}));
  EXPECT_EQ(names_shown("1, 0"), Names({"Fake A24", "Fake H80"}));
  const std::vector<Card> asked = cards_asked_for("0", fake_showing("1"));
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].name, "Fake A24");
  EXPECT_EQ(card_text(asked[0], 0),
            "card 0 (nvidia-smi's 2): Fake A24, 24 GiB, nobody else uses it");
}

TEST(VisibleCards, AreNamedByUuidOrItsBeginning) {
  EXPECT_EQ(names_shown("GPU-22222222-2222-2222-2222-222222222222,GPU-0"),
            Names({"Fake A24", "Fake H80"}));
  EXPECT_EQ(names_shown("GPU-"), Names());  // not unique: two cards match
  EXPECT_EQ(names_shown("GPU-7"), Names());
}

TEST(VisibleCards, MayBeAPartOfOne) {
  const Nvml nvml = fake_showing("MIG-33333333-3333-3333-3333-333333333333");
  const std::vector<Card> cards = nvml.cards();
  ASSERT_EQ(cards.size(), 1u);
  EXPECT_EQ(cards[0].total_bytes, 10 * kGiB);
  EXPECT_EQ(cards[0].uuid, "MIG-33333333-3333-3333-3333-333333333333");
  EXPECT_EQ(cards[0].nvidia_smi, -1);
  EXPECT_EQ(names_shown("MIG-44444444-4444-4444-4444-444444444444"), Names());
}

TEST(VisibleCards, EndAtTheFirstTextThatNamesNoCard) {
  EXPECT_EQ(names_shown("0,5,1"), Names({"Fake H80"}));
  EXPECT_EQ(names_shown("0,0"), Names());
  for (const char* nothing : {"", "-1", "NoDevFiles"}) {
    EXPECT_EQ(names_shown(nothing), Names()) << nothing;
    EXPECT_EQ(
        fake_showing(nothing).reason(),
        "CUDA_VISIBLE_DEVICES=" + std::string(nothing) + " hides every card");
  }
}

TEST(VisibleCards, AreListedWhereOneIsRefused) {
  EXPECT_EQ(
      refusal([] { cards_asked_for("1", fake_showing("1")); }),
      "[device] --device 1: there is no card 1; here is 0 (Fake A24); "
      "CUDA_VISIBLE_DEVICES=1 decides which are shown: name one of these");
  EXPECT_THAT(refusal([] {
                cards_asked_for("0", Nvml(HEADROOM_FAKE_NVML,
                                          {std::nullopt, "FASTEST_FIRST"}));
              }),
              HasSubstr("CUDA_DEVICE_ORDER=FASTEST_FIRST numbers cards "
                        "otherwise than nvidia-smi does"));
}

TEST(VisibleCards, AnyIsFoundByItsUuid) {
  const Nvml nvml = fake_showing("0");
  EXPECT_EQ(nvml.card_of("GPU-22222222-2222-2222-2222-222222222222")->name,
            "Fake A24");
  EXPECT_EQ(
      nvml.card_of("MIG-33333333-3333-3333-3333-333333333333")->total_bytes,
      10 * kGiB);
  EXPECT_FALSE(nvml.card_of("GPU-2"));
}

TEST(CardUse, IsSaid) {
  const Card card = fake().cards()[0];
  EXPECT_EQ(card_text(card, 20 * kGiB),
            "card 0: Fake H80, 80 GiB, others use 20 GiB of it (process "
            "4001: 12 GiB, process 4002: 7 GiB)");
  EXPECT_EQ(card_text(card, 0),
            "card 0: Fake H80, 80 GiB, nobody else uses it");
}

}  // namespace
}  // namespace headroom::nvml
