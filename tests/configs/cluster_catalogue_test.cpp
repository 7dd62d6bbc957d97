#include "configs/cluster_catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "parallel/base/check.h"

namespace headroom::configs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kFamily =
    "provider: AWS\nfamilies:\n  - gpu: T4\n    link: PCIe\n";

TEST(ClusterCatalogue, KnowsRealInstances) {
  const Instance& p4d = find_instance("p4d.24xlarge");
  EXPECT_EQ(p4d.gpus, 8);
  EXPECT_EQ(p4d.compute_capability, 80);
  EXPECT_EQ(find_instance("p3.2xlarge").compute_capability, 70);
  EXPECT_GE(instance_catalogue().size(), 40u);
}

// A card's compute capability decides which software it needs, and its memory
// decides whether a plan fits.
TEST(ClusterCatalogue, HasEachFamilyOfAwsWithItsCardAndMemory) {
  struct Family {
    const char* instance;
    int64_t gpus;
    int compute_capability;
    int64_t gibibytes;  // memory of one card, rounded down
    const char* link;
  };
  constexpr Family kFamilies[] = {{"p2.16xlarge", 16, 37, 11, "PCIe"},
                                  {"p3.16xlarge", 8, 70, 15, "NVLink"},
                                  {"p3dn.24xlarge", 8, 70, 31, "NVLink"},
                                  {"p4d.24xlarge", 8, 80, 39, "NVSwitch"},
                                  {"p4de.24xlarge", 8, 80, 79, "NVSwitch"},
                                  {"p5.48xlarge", 8, 90, 79, "NVSwitch"},
                                  {"p5e.48xlarge", 8, 90, 140, "NVSwitch"},
                                  {"p5en.48xlarge", 8, 90, 140, "NVSwitch"},
                                  {"p6-b200.48xlarge", 8, 100, 179, "NVSwitch"},
                                  {"g4dn.12xlarge", 4, 75, 15, "PCIe"},
                                  {"g5.48xlarge", 8, 86, 22, "PCIe"},
                                  {"g6.48xlarge", 8, 89, 22, "PCIe"},
                                  {"g6e.48xlarge", 8, 89, 44, "PCIe"},
                                  {"g7e.48xlarge", 8, 120, 95, "PCIe"}};
  for (const Family& family : kFamilies) {
    const Instance& instance = find_instance(family.instance);
    EXPECT_EQ(instance.gpus, family.gpus) << instance.name;
    EXPECT_EQ(instance.compute_capability, family.compute_capability)
        << instance.name;
    EXPECT_EQ(instance.gpu_memory_bytes >> 30, family.gibibytes)
        << instance.name;
    EXPECT_EQ(instance.link, family.link) << instance.name;
  }
}

TEST(ClusterCatalogue, AGpuAloneHasNoLink) {
  for (const Instance& instance : instance_catalogue()) {
    EXPECT_EQ(instance.link.empty(), instance.gpus == 1) << instance.name;
    if (instance.gpus == 1) {
      EXPECT_EQ(instance.link_gigabytes_per_second, 0) << instance.name;
    }
  }
  EXPECT_EQ(find_instance("p3.8xlarge").link, "NVLink");
}

TEST(ClusterCatalogue, AWrongNameGetsTheNearestRealOnes) {
  EXPECT_THAT([] { find_instance("p2.2xlarge"); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("p2.2xlarge"), HasSubstr("p2.xlarge"))));
  EXPECT_THAT([] { find_instance("p8"); },
              ThrowsMessage<Error>(HasSubstr("p2.xlarge")));
}

TEST(ClusterCatalogue, CardsAreFoundHoweverTheirNameIsWritten) {
  for (const char* name :
       {"RTX 4090", "NVIDIA GeForce RTX 4090", "geforce-rtx-4090", "4090"}) {
    EXPECT_EQ(find_card(name).name, "RTX 4090") << name;
  }
  for (const auto& [name, card] :
       {std::pair{"GTX 1650 4 GB", "GTX 1650"},
        std::pair{"RTX 3060 12GB", "RTX 3060 12GB"},
        std::pair{"rtx3060 12gib", "RTX 3060 12GB"},
        std::pair{"NVIDIA GeForce RTX 3060 Laptop GPU", "RTX 3060 Laptop"},
        std::pair{"RTX 3060 Mobile 6G", "RTX 3060 Laptop"},
        std::pair{"RTX 2060 with Max-Q Design", "RTX 2060 Laptop"},
        std::pair{"NVIDIA A100-SXM4-80GB", "A100 80GB"},
        std::pair{"NVIDIA H100 80GB HBM3", "H100 80GB"},
        std::pair{"Tesla V100-SXM2-16GB", "V100 16GB"},
        std::pair{"Quadro RTX 6000", "Quadro RTX 6000"},
        std::pair{"RTX A4000", "RTX A4000"}, std::pair{"L4 24GB", "L4"}}) {
    EXPECT_EQ(find_card(name).name, card) << name;
  }
  EXPECT_EQ(find_card("Tesla T4").compute_capability, 75);
  EXPECT_THAT([] { find_card("RTX 4190"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("RTX 4090"),
                                         HasSubstr("--gpu-memory SIZE"))));
}

TEST(ClusterCatalogue, NoTwoCardsAreReadAsOne) {
  for (const CataloguedCard& card : card_catalogue()) {
    EXPECT_EQ(&find_card(card.machine.name), &card.machine)
        << card.machine.name;
    for (const std::string& other : card.also) {
      const auto named = cards_named(other);
      EXPECT_NE(std::ranges::find(named, &card.machine), named.end()) << other;
    }
  }
}

TEST(ClusterCatalogue, ANameOfTwoMemorySizesIsTheSmallerCard) {
  const auto a100 = cards_named("A100");
  ASSERT_EQ(a100.size(), 2u);
  EXPECT_EQ(a100[0]->name, "A100 40GB");
  EXPECT_EQ(a100[1]->name, "A100 80GB");
  EXPECT_THAT(
      [] { find_card("RTX 3060 16GB"); },
      ThrowsMessage<Error>(AllOf(HasSubstr("none of that name has 16 GB"),
                                 HasSubstr("RTX 3060 8GB (8 GiB), RTX 3060 "
                                           "12GB (12 GiB)"))));
}

// A forecast needs the peak rates of computation and of memory.
TEST(ClusterCatalogue, EachCardHasItsPeaks) {
  for (const CataloguedCard& card : card_catalogue()) {
    EXPECT_GT(card.machine.float_teraflops, 0) << card.machine.name;
    EXPECT_GE(card.machine.tensor_teraflops, card.machine.float_teraflops)
        << card.machine.name;
    EXPECT_GT(card.machine.memory_gigabytes_per_second, 0) << card.machine.name;
  }
}

TEST(ClusterCatalogue, MachinesOfSeveralProvidersHaveTheCardsOfTheTable) {
  for (const auto& [name, provider, card] :
       {std::tuple{"g5.xlarge", "AWS", "NVIDIA A10G"},
        std::tuple{"Standard_NC24ads_A100_v4", "Azure", "NVIDIA A100 80GB"},
        std::tuple{"g2-standard-4", "Google", "NVIDIA L4"}}) {
    EXPECT_EQ(find_instance(name).provider, provider);
    EXPECT_EQ(find_instance(name).gpu, card);
  }
}

TEST(ClusterCatalogue, UnknownAndMissingKeysAreRefusedByPlace) {
  const auto refuses = [](const std::string& text, const std::string& what) {
    EXPECT_THAT([&] { parse_instances(text, "x.yaml"); },
                ThrowsMessage<Error>(HasSubstr(what)))
        << text;
  };
  const std::string family = kFamily;
  refuses(family + "    colour: red\n", "x.yaml:5:5");
  refuses(family, "'instances' is missing");
  refuses(family + "    instances:\n      - {name: a, gpus: 0}\n", "gpus is 0");
  refuses(family + "    instances:\n      - {name: a, gpu: 1}\n", "x.yaml:6:");
  refuses("provider: P\nfamilies:\n  - gpu: A100\n", "x.yaml:3:10");
  refuses("provider: P\nfamilies:\n  - gpu: T5\n", "the nearest ones are T4");
}

}  // namespace
}  // namespace headroom::configs
