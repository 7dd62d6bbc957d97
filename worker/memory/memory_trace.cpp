#include "worker/memory/memory_trace.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <numeric>
#include <utility>

#include <ATen/ops/from_blob.h>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/codecs/image_writer.h"

namespace headroom::memory {
namespace {

using Kind = activations::MemoryTimeline::Kind;

constexpr double kMebibyte = 1 << 20;
// The beginning of a trace file, by which an earlier trace is recognised.
constexpr const char* kBegin = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";

const char* category_name(int32_t index) {
  return name_of(static_cast<MemoryCategory>(index));
}

int64_t first_time(const std::vector<MemoryRecord>& ranks) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const MemoryRecord& record : ranks) {
    if (!record.events.empty()) {
      first = std::min(first, record.events.front().nanoseconds);
    }
  }
  return first;
}

// Writes the events of one rank as lines of the trace.
class TraceLines {
 public:
  TraceLines(size_t rank, int64_t origin, std::string& text)
      : rank_(rank), origin_(origin), text_(text) {}

  void add(const MemoryRecord& record) {
    const std::string name = cat("rank ", rank_);
    add("{\"ph\":\"M\",\"pid\":%zu,\"name\":\"process_name\",\"args\":{"
        "\"name\":"
        "\"%s\"}}",
        rank_, name.c_str());
    for (const activations::MemoryTimeline::Event& event : record.events)
      add(event);
    if (record.events.empty()) return;
    close_phase(record.events.back().nanoseconds);
    if (record.is_full) {
      add("{\"ph\":\"i\",\"s\":\"p\",\"pid\":%zu,\"tid\":0,\"ts\":%.3f,"
          "\"name\":"
          "\"the record is full\"}",
          rank_, microseconds(record.events.back().nanoseconds));
    }
  }

 private:
  void add(const activations::MemoryTimeline::Event& event) {
    switch (event.kind) {
      case Kind::kPhase:
        close_phase(event.nanoseconds);
        phase_ = static_cast<StepPhase>(event.index);
        phase_begin_ = event.nanoseconds;
        break;
      case Kind::kUncounted:
        counter("resident beyond the peak", event.nanoseconds, event.bytes);
        break;
      case Kind::kLive: {
        live_.at(static_cast<size_t>(event.index)) = event.bytes;
        counter(category_name(event.index), event.nanoseconds, event.bytes);
        counter("all tensors", event.nanoseconds,
                std::accumulate(live_.begin(), live_.end(), int64_t{0}));
        break;
      }
    }
  }

  void counter(const char* name, int64_t time, int64_t bytes) {
    add("{\"ph\":\"C\",\"pid\":%zu,\"ts\":%.3f,\"name\":\"%s\",\"args\":{"
        "\"bytes\":%lld}}",
        rank_, microseconds(time), name, static_cast<long long>(bytes));
  }

  void close_phase(int64_t end) {
    if (phase_ == StepPhase::kNone) return;
    add("{\"ph\":\"X\",\"pid\":%zu,\"tid\":0,\"ts\":%.3f,\"dur\":%.3f,\"name\":"
        "\"%s\"}",
        rank_, microseconds(phase_begin_),
        static_cast<double>(end - phase_begin_) / 1e3, name_of(phase_));
    phase_ = StepPhase::kNone;
  }

  double microseconds(int64_t time) const {
    return static_cast<double>(time - origin_) / 1e3;
  }

  template <typename... Values>
  void add(const char* format, Values... values) {
    char line[256];
    std::snprintf(line, sizeof line, format, values...);
    text_ += text_.ends_with('[') ? "\n" : ",\n";
    text_ += line;
  }

  const size_t rank_;
  const int64_t origin_;
  std::string& text_;
  activations::CategoryBytes live_{};
  StepPhase phase_ = StepPhase::kNone;
  int64_t phase_begin_ = 0;
};

chart::AreaPanel panel_of(const MemoryRecord& record, size_t rank,
                          int64_t origin) {
  chart::AreaPanel panel;
  panel.title = cat("rank ", rank);
  std::vector<double> live(kNumMemoryCategories);
  for (const activations::MemoryTimeline::Event& event : record.events) {
    const double seconds =
        static_cast<double>(event.nanoseconds - origin) / 1e9;
    if (event.kind == Kind::kLive) {
      live.at(static_cast<size_t>(event.index)) =
          static_cast<double>(event.bytes) / kMebibyte;
      panel.samples.push_back({seconds, live});
    } else if (event.kind == Kind::kPhase) {
      const auto phase = static_cast<StepPhase>(event.index);
      panel.marks.push_back(
          {seconds, phase == StepPhase::kNone ? "" : name_of(phase)});
    }
  }
  return panel;
}

}  // namespace

std::string to_chrome_trace(const std::vector<MemoryRecord>& ranks) {
  const int64_t origin = first_time(ranks);
  std::string text = kBegin;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    TraceLines(rank, origin, text).add(ranks[rank]);
  }
  return text + "\n]}\n";
}

chart::AreaChart to_chart(const std::vector<MemoryRecord>& ranks) {
  const int64_t origin = first_time(ranks);
  chart::AreaChart chart;
  chart.title = "memory of tensors by what they are for";
  chart.time_title = "seconds";
  for (size_t i = 0; i < kNumMemoryCategories; ++i) {
    chart.part_names.push_back(category_name(static_cast<int32_t>(i)));
  }
  chart.text_of_time = [](double seconds) {
    return significant_text(seconds, 3);
  };
  chart.text_of_part = [](double mebibytes) {
    return significant_text(mebibytes, 4) + " MiB";
  };
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    chart.panels.push_back(panel_of(ranks[rank], rank, origin));
  }
  return chart;
}

int64_t most_uncounted_bytes(const MemoryRecord& record) {
  int64_t most = 0;
  for (const activations::MemoryTimeline::Event& event : record.events) {
    if (event.kind == Kind::kUncounted) most = std::max(most, event.bytes);
  }
  return most;
}

namespace {

namespace fs = std::filesystem;

void write_file(const fs::path& file, const std::string& bytes) {
  try {
    write_whole_file(file, bytes);
  } catch (const Error& error) {
    throw Error("memory_trace", error.text(),
                "name a file in a folder that is there and has room: "
                "--memory-trace FILE");
  }
}

// A tensor that shares the vector's memory, so that no memory is allocated that
// counts against a limit.
template <typename T>
at::Tensor bytes_of(std::vector<T>& values) {
  return at::from_blob(values.data(),
                       {static_cast<int64_t>(values.size() * sizeof(T))},
                       at::kByte);
}

// The head of a record: its number of events, and is_full.
using Head = std::vector<int64_t>;

void send_record(collectives::Communicator& world, MemoryRecord record) {
  Head head = {static_cast<int64_t>(record.events.size()), record.is_full};
  world.send(bytes_of(head), 0);
  if (!record.events.empty()) world.send(bytes_of(record.events), 0);
}

MemoryRecord receive_record(collectives::Communicator& world, int from) {
  Head head(2);
  world.recv(bytes_of(head), from);
  MemoryRecord record;
  record.events.resize(static_cast<size_t>(head[0]));
  record.is_full = head[1] != 0;
  if (!record.events.empty()) world.recv(bytes_of(record.events), from);
  return record;
}

}  // namespace

namespace {

// Throws if writing a trace would replace a file that is not a trace.
void require_replaceable(const fs::path& file, const fs::path& picture) {
  const std::string begin = kBegin;
  const auto is_trace = [&] {
    return RegularFile(file, Links::kRefused).read(0, begin.size()) == begin;
  };
  for (const fs::path& path : {file, picture}) {
    const RegularFile old(path, Links::kRefused);
    const bool is_there = old.is_open() || errno != ENOENT;
    if (!is_there || (old.is_open() && (old.size() == 0 || is_trace()))) {
      continue;
    }
    const std::string fault = old.is_open()
                                  ? "is there, and is no memory trace"
                                  : "cannot be replaced (" + file_fault() + ")";
    throw Error("memory_trace", path.string() + " " + fault,
                "move it away, or name another file: --memory-trace FILE");
  }
}

}  // namespace

MemoryTracer::MemoryTracer(fs::path file, int64_t num_steps, int rank,
                           activations::MemoryMeter& memory)
    : file_(std::move(file)),
      picture_(fs::path(file_).replace_extension(".png")),
      steps_left_(num_steps),
      memory_(memory) {
  HEADROOM_CHECK(num_steps > 0, "a trace of no steps");
  if (rank != 0) return;
  require_replaceable(file_, picture_);
  // Write the beginning of a trace now, so that the file of a killed run is
  // recognised as a trace.
  write_file(file_, kBegin);
  write_file(picture_, "");
}

MemoryTracer::~MemoryTracer() { pause(); }

void MemoryTracer::begin_step() {
  timeline_.resume(memory_.live_by_category());
  memory_.set_timeline(&timeline_);
  observe_step_phases(&timeline_);
}

void MemoryTracer::pause() {
  memory_.set_timeline(nullptr);
  observe_step_phases(nullptr);
}

bool MemoryTracer::end_step(collectives::Communicator& world) {
  pause();
  --steps_left_;
  write(world);
  return steps_left_ == 0;
}

void MemoryTracer::write(collectives::Communicator& world) {
  MemoryRecord mine = {timeline_.events(), timeline_.is_full()};
  if (world.rank() != 0) return send_record(world, std::move(mine));
  std::vector<MemoryRecord> ranks;
  ranks.push_back(std::move(mine));
  for (int rank = 1; rank < world.size(); ++rank) {
    ranks.push_back(receive_record(world, rank));
  }
  write_file(file_, to_chrome_trace(ranks));
  write_file(picture_,
             codecs::encode_png_bytes(chart::draw_area_chart(to_chart(ranks))));
  const activations::CategoryBytes peaks = memory_.peak_by_category();
  summary_ = file_.string() + " and " + picture_.string() +
             " are written; peaks of rank 0:";
  for (size_t i = 0; i < peaks.size(); ++i) {
    if (peaks[i] == 0) continue;
    summary_ += std::string(" ") + name_of(static_cast<MemoryCategory>(i)) +
                " " + format_bytes(peaks[i]) + ",";
  }
  summary_ += " resident beyond the counted peak " +
              format_bytes(most_uncounted_bytes(ranks.front()));
}

}  // namespace headroom::memory
