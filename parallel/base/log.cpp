// spdlog stays behind this file: its fmt headers must not meet LibTorch's.
#include "parallel/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <memory>
#include <mutex>

#include "parallel/base/utf8.h"

namespace headroom::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  static constexpr std::array kLevels = {
      spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
      spdlog::level::err};
  return kLevels.at(static_cast<size_t>(level));
}

struct State {
  std::shared_ptr<spdlog::logger> logger = spdlog::stderr_color_mt("headroom");
  std::mutex mutex;
  std::string prefix;
  State() { logger->set_pattern("%H:%M:%S %^%l%$ %v"); }
};

State& state() {
  static auto* instance = new State;  // outlives every thread that logs
  return *instance;
}

}  // namespace

void set_level(Level level) { state().logger->set_level(to_spdlog(level)); }

void set_prefix(std::string prefix) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.prefix = prefix.empty() ? "" : "[" + prefix + "] ";
}

void write(Level level, std::string_view message) {
  State& s = state();
  std::string prefix;
  {
    std::lock_guard lock(s.mutex);
    prefix = s.prefix;
  }
  s.logger->log(to_spdlog(level), "{}{}", prefix, printable(message));
}

}  // namespace headroom::log
