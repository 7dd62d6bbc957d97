#include "configs/cluster_catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom::configs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kFamily =
    "provider: AWS\ngpu: G\ngpu_memory: 1GiB\ncompute_capability: \"8.0\"\n"
    "link: PCIe\n";

TEST(ClusterCatalogue, KnowsRealInstances) {
  const Instance& p4d = find_instance("p4d.24xlarge");
  EXPECT_EQ(p4d.gpus, 8);
  EXPECT_EQ(p4d.compute_capability, 80);
  EXPECT_EQ(find_instance("p3.2xlarge").compute_capability, 70);
  EXPECT_GE(instance_catalogue().size(), 40u);
}

// Compute capability and memory decide what software a card needs, and whether
// a plan fits it.
TEST(ClusterCatalogue, HasEachFamilyOfAwsWithItsCardAndMemory) {
  struct Family {
    const char* instance;
    int64_t gpus;
    int compute_capability;
    int64_t gibibytes;  // of a card, rounded down
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
  EXPECT_EQ(find_card("Tesla T4").compute_capability, 75);
  // Each name finds its own card, so no two names are read as the same card.
  for (const Instance& card : card_catalogue()) {
    EXPECT_EQ(&find_card(card.name), &card) << card.name;
  }
  EXPECT_THAT([] { find_card("A100"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("A100 40GB, A100 80GB"),
                                         HasSubstr("--gpu-memory SIZE"))));
}

TEST(ClusterCatalogue, UnknownAndMissingKeysAreRefusedByPlace) {
  const auto refuses = [](const std::string& text, const std::string& what) {
    EXPECT_THAT([&] { parse_instances(text, "x.yaml"); },
                ThrowsMessage<Error>(HasSubstr(what)))
        << text;
  };
  refuses(std::string(kFamily) + "colour: red\n", "x.yaml:6:1");
  refuses(kFamily, "'instances' is missing");
  refuses(std::string(kFamily) + "instances:\n  - {name: a, gpus: 0}\n",
          "gpus is 0");
  refuses(std::string(kFamily) + "instances:\n  - {name: a, gpu: 1}\n",
          "x.yaml:7:");
}

}  // namespace
}  // namespace headroom::configs
