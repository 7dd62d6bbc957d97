// Only this file includes spdlog: its fmt headers conflict with LibTorch's.
#include "parallel/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>
#include <utility>

#include "parallel/base/text.h"
#include "parallel/base/utf8.h"

namespace headroom::log {
namespace {

constexpr char kRecordSeparator = '\x1e';

spdlog::level::level_enum to_spdlog(Level level) {
  static constexpr std::array kLevels = {
      spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
      spdlog::level::err};
  return kLevels.at(static_cast<size_t>(level));
}

struct State {
  std::shared_ptr<spdlog::logger> logger = spdlog::stderr_color_mt("headroom");
  // Writes lines that already contain their time and level.
  std::shared_ptr<spdlog::logger> lines = spdlog::stderr_color_mt("lines");
  std::mutex mutex;
  std::string prefix;
  std::atomic<bool> writes_records{false};
  State() {
    logger->set_pattern("%H:%M:%S %^%l%$ %v");
    lines->set_pattern("%v");
  }
};

State& state() {
  static auto* instance = new State;  // outlives every thread that logs
  return *instance;
}

std::string clock_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[16];
  return {text, std::strftime(text, sizeof text, "%T", &parts)};
}

}  // namespace

void set_level(Level level) {
  state().logger->set_level(to_spdlog(level));
  state().lines->set_level(to_spdlog(level));
}

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
  std::string text = prefix + printable(message);
  if (s.writes_records) {
    pass_on({clock_time(), level, std::move(text)});
  } else {
    s.logger->log(to_spdlog(level), "{}", text);
  }
}

const char* to_string(Level level) {
  static constexpr std::array kNames = {"debug", "info", "warning", "error"};
  return kNames.at(static_cast<size_t>(level));
}

std::string to_text(const Record& record) {
  return record.time + " " + to_string(record.level) + " " + record.message;
}

std::string to_line(const Record& record) {
  return cat(kRecordSeparator, static_cast<int>(record.level), record.time, " ",
             record.message);
}

std::optional<Record> from_line(std::string_view line) {
  constexpr size_t kHead = 2;  // length of the separator and the level
  if (line.size() < kHead || line[0] != kRecordSeparator) return std::nullopt;
  const int level = line[1] - '0';
  const size_t blank = line.find(' ');
  if (level < 0 || level > static_cast<int>(Level::kError) ||
      blank == std::string_view::npos) {
    return std::nullopt;
  }
  return Record{std::string(line.substr(kHead, blank - kHead)),
                static_cast<Level>(level), std::string(line.substr(blank + 1))};
}

void follow_parent() {
  if (std::getenv(kRecordsVariable) == nullptr) return;
  ::unsetenv(kRecordsVariable);
  state().writes_records = true;
}

void pass_on(const Record& record) {
  State& s = state();
  s.lines->log(to_spdlog(record.level), "{}",
               s.writes_records ? to_line(record) : to_text(record));
}

}  // namespace headroom::log
