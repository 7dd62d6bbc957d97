#include "worker/memory/memory_tracer.h"

#include <ATen/ops/from_blob.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/units.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/memory/memory_trace.h"

namespace headroom::memory {
namespace {

namespace fs = std::filesystem;

void write_text(const fs::path& file, const std::string& text) {
  errno = 0;
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) {
    throw Error("memory_trace",
                "cannot write " + file.string() + ": " + std::strerror(errno),
                "name a file in a folder that is there and has room: "
                "--memory-trace FILE");
  }
}

// Their memory as a tensor, so that nothing is allocated where a limit counts.
template <typename T>
at::Tensor bytes_of(std::vector<T>& values) {
  return at::from_blob(values.data(),
                       {static_cast<int64_t>(values.size() * sizeof(T))},
                       at::kByte);
}

// Number of events, is_full.
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

MemoryTracer::MemoryTracer(fs::path file, int64_t num_steps, int rank,
                           activations::MemoryMeter& memory)
    : file_(std::move(file)),
      picture_(fs::path(file_).replace_extension(".png")),
      steps_left_(num_steps),
      memory_(memory) {
  HEADROOM_CHECK(num_steps > 0, "a trace of no steps");
  if (rank != 0) return;
  write_text(file_, "");
  write_text(picture_, "");
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
  write_text(file_, to_chrome_trace(ranks));
  codecs::write_png(chart::draw_area_chart(to_chart(ranks)), picture_);
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
