// Host memory that the test device may copy from asynchronously.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>

namespace headroom {

std::shared_ptr<void> lock_test_pages(int64_t bytes);

bool is_page_locked(const void* address);

}  // namespace headroom
