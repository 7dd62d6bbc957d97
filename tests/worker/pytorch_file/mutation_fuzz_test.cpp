// Checkpoints are damaged, from a fixed seed. For any bytes, the reader reads
// or refuses the file. It must not crash, hang or allocate more than the file
// justifies.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <random>

#include "parallel/base/check.h"
#include "tests/support/temporary_folder.h"
#include "tests/worker/pytorch_file/archive_maker.h"
#include "worker/pytorch_file/pickle.h"
#include "worker/pytorch_file/pytorch_file.h"

namespace headroom::pytorch_file {
namespace {

using testing::read_bytes;
using testing::TemporaryFolder;

std::string small_checkpoint() {
  using namespace pickled;
  std::vector<std::string> children;
  for (int i = 0; i < 6; ++i) {
    children.push_back(text(std::to_string(i)));
    children.push_back(module(
        "Conv",
        {text("weight"),
         tensor("HalfStorage", std::to_string(i), 12, i, {2, 3}, {3, 1})},
        {}));
  }
  const std::string value =
      whole(dict({text("epoch"), integer(3), text("model"),
                  module("DetectionModel", {}, children)}));
  std::vector<ArchiveEntry> entries = {{"last/data.pkl", value},
                                       {"last/byteorder", "little"}};
  for (int i = 0; i < 6; ++i) {
    entries.push_back({"last/data/" + std::to_string(i), std::string(24, 'h')});
  }
  return make_archive(entries);
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string mutate(std::string bytes) {
    const size_t changes = 1 + random_() % 8;
    for (size_t i = 0; i < changes && !bytes.empty(); ++i) {
      const size_t at = random_() % bytes.size();
      const size_t length = std::min<size_t>(random_() % 64, bytes.size() - at);
      switch (random_() % 6) {
        case 0:
          bytes[at] = static_cast<char>(random_());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random_() % 8));
          break;
        case 2:
          bytes.erase(at, length);
          break;
        case 3:
          bytes.insert(at, bytes.substr(at, length));
          break;
        case 4:  // extreme lengths and offsets
          bytes.replace(at, std::min<size_t>(4, bytes.size() - at),
                        random_() % 2 == 0 ? std::string(4, '\xff')
                                           : std::string(4, '\0'));
          break;
        default:
          std::swap(bytes[at], bytes[random_() % bytes.size()]);
      }
    }
    return bytes;
  }

 private:
  std::mt19937_64 random_;
};

int64_t peak_resident_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Returns how many of `rounds` damaged files were still read.
int64_t fuzz(const std::string& good, uint64_t seed, int64_t rounds) {
  const TemporaryFolder folder;
  Mutator mutator(seed);
  int64_t accepted = 0;
  const int64_t before = peak_resident_kib();
  for (int64_t i = 0; i < rounds; ++i) {
    const std::string bytes = mutator.mutate(good);
    const auto begin = std::chrono::steady_clock::now();
    try {
      PytorchFile file(folder.write("file.pt", bytes));
      for (const PytorchFile::Tensor& tensor : file.tensors()) {
        EXPECT_LE(file.read_storage(tensor.storage).size(), bytes.size());
      }
      ++accepted;
    } catch (const Error&) {
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5))
        << "seed " << seed << ", round " << i;
  }
  EXPECT_LT(peak_resident_kib() - before, 512 << 10);
  return accepted;
}

TEST(PytorchFileFuzz, DamagedFilesAreReadOrRefused) {
  EXPECT_LT(fuzz(small_checkpoint(), 1, 1000), 1000);
}

// Random sequences of the pickle instructions that build objects.
TEST(PytorchFileFuzz, RandomInstructionsAreReadOrRefused) {
  std::mt19937_64 random(2);
  const std::string codes =
      "()]}tlduaesqhKNMJXcRbQ0\x81\x85\x86\x87\x88\x94\x93.";
  int64_t refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = "\x80\x02";
    for (size_t n = random() % 60; n > 0; --n) {
      bytes += codes[random() % codes.size()];
      if (random() % 4 == 0) bytes += static_cast<char>(random() % 4);
    }
    try {
      Pickle::parse(bytes + ".", "random");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(SlowPytorchFileFuzz, DamagedFilesAreReadOrRefused) {
  for (uint64_t seed = 10; seed < 30; ++seed) {
    EXPECT_LT(fuzz(small_checkpoint(), seed, 2000), 2000);
  }
}

TEST(SlowPytorchFileFuzz, ARealCheckpointDamaged) {
  const auto path = std::filesystem::path(HEADROOM_SOURCE_DIR) /
                    "../shared/parity/weights/bccd_v5n.pt";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no ../shared/parity";
  std::printf("parity file used: weights/bccd_v5n.pt\n");
  EXPECT_LE(fuzz(read_bytes(path), 5, 200), 200);
}

}  // namespace
}  // namespace headroom::pytorch_file
