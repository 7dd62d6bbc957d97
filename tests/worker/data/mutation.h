// Damaged files for readers. No file may make a reader crash, hang or allocate
// memory that the file does not justify.
//
// Damage is drawn from a fixed seed, so that failures repeat. The address space
// is limited meanwhile: if a reader allocates a size that a file only claims,
// std::bad_alloc fails the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "worker/data/sampling/random.h"

namespace headroom {

inline constexpr rlim_t kRoomBytes = rlim_t{768} << 20;
inline constexpr double kLongestSeconds = 20;  // per file, on a busy machine

// While this object exists, it limits the memory beyond the process's current
// use.
class BoundedMemory {
 public:
  BoundedMemory() {
    ::getrlimit(RLIMIT_AS, &before_);
    std::ifstream pages("/proc/self/statm");
    rlim_t used = 0;
    pages >> used;
    rlimit bound = before_;
    bound.rlim_cur = used * 4096 + kRoomBytes;
    ::setrlimit(RLIMIT_AS, &bound);
  }
  ~BoundedMemory() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

// Damages the text in one to eight ways: bytes changed, cut out, repeated or
// set to extremes, the end cut off, a number made huge.
inline std::string damaged(std::string text, sampling::RandomStream& draws) {
  const int64_t changes = 1 + draws.below(8);
  for (int64_t i = 0; i < changes && !text.empty(); ++i) {
    const auto size = static_cast<int64_t>(text.size());
    const auto at = static_cast<size_t>(draws.below(size));
    const auto length =
        static_cast<size_t>(1 + draws.below(std::min<int64_t>(
                                    64, size - static_cast<int64_t>(at))));
    switch (draws.below(7)) {
      case 0:
        text[at] = static_cast<char>(draws.below(256));
        break;
      case 1:
        text[at] = static_cast<char>(text[at] ^ (1 << draws.below(8)));
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      case 4:
        text.replace(at, length, std::string(length, '\xff'));
        break;
      case 5:
        text.resize(at);
        break;
      default:
        text.insert(at, draws.below(2) == 0 ? "99999999999999999999e999"
                                            : std::string(300, '['));
        break;
    }
  }
  return text;
}

// Changes fields in the directories of a TIFF to limits of their values, to
// other fields, or to positions in the file, such as those of directories.
inline std::string with_damaged_tags(std::string text,
                                     sampling::RandomStream& draws) {
  const bool is_big = text.size() > 16 && text[2] == 43;
  const size_t pointer_bytes = is_big ? 8 : 4;
  const size_t entry_bytes = is_big ? 20 : 12;
  const size_t count_bytes = is_big ? 8 : 2;
  const auto number_at = [&text](size_t at, size_t bytes) {
    uint64_t number = 0;
    if (at <= text.size() && bytes <= text.size() - at) {
      std::memcpy(&number, text.data() + at, bytes);
    }
    return number;
  };
  std::vector<size_t> fields = {pointer_bytes};  // positions of the fields
  std::vector<uint64_t> values = {
      0, 1, 2, 3, 255, 65'535, INT32_MAX, UINT32_MAX, UINT64_MAX, text.size()};
  uint64_t directory = number_at(pointer_bytes, pointer_bytes);
  for (int page = 0; page < 4 && directory > 0; ++page) {
    values.push_back(directory);
    const uint64_t entries = number_at(directory, count_bytes);
    const size_t first = directory + count_bytes;
    for (size_t i = 0; i < entries && i < 40; ++i) {
      const size_t entry = first + i * entry_bytes;
      fields.insert(fields.end(),
                    {entry, entry + 2, entry + 4, entry + 4 + pointer_bytes});
      values.push_back(number_at(entry, 2));
      values.push_back(number_at(entry + 4 + pointer_bytes, pointer_bytes));
    }
    const size_t next = first + entries * entry_bytes;
    fields.push_back(next);
    directory = number_at(next, pointer_bytes);
  }
  const auto one_of = [&draws](const auto& list) {
    return list[static_cast<size_t>(
        draws.below(static_cast<int64_t>(list.size())))];
  };
  const int64_t changes = 1 + draws.below(4);
  for (int64_t i = 0; i < changes; ++i) {
    const size_t at = one_of(fields);
    const uint64_t value = one_of(values);
    const size_t bytes = draws.below(2) == 0 ? 2 : pointer_bytes;
    if (at <= text.size() && bytes <= text.size() - at) {
      std::memcpy(text.data() + at, &value, bytes);
    }
  }
  return text;
}

using Damage = std::string (*)(std::string text, sampling::RandomStream& draws);

// Runs `read` on `count` damaged forms of each sample.
inline void survive(const std::vector<std::string>& samples, int count,
                    const std::function<void(const std::string&)>& read,
                    Damage damage = damaged) {
  for (size_t s = 0; s < samples.size(); ++s) {
    read(samples[s]);  // libraries allocate memory for later use
    const BoundedMemory bound;
    for (int i = 0; i < count; ++i) {
      sampling::RandomStream draws(11, s, static_cast<uint64_t>(i),
                                   sampling::RandomPurpose::kSyntheticImage);
      const std::string text = damage(samples[s], draws);
      const auto begin = std::chrono::steady_clock::now();
      ASSERT_NO_THROW(read(text)) << "sample " << s << ", damage " << i;
      const std::chrono::duration<double> seconds =
          std::chrono::steady_clock::now() - begin;
      ASSERT_LT(seconds.count(), kLongestSeconds)
          << "sample " << s << ", damage " << i;
    }
  }
}

// Runs `body`; a refusal is a valid result.
inline void allow_refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error&) {
  }
}

}  // namespace headroom
