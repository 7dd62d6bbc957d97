#include "deploy/page/event_stream.h"

#include <microhttpd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "parallel/base/text.h"

namespace headroom::page {

struct EventStream::Reader {
  EventStream* stream = nullptr;
  MHD_Connection* connection = nullptr;
  Text seen;            // the last text that was sent completely
  Text sending;         // nullptr if nothing is being sent
  size_t num_sent = 0;  // bytes of `sending` that were sent
  bool waits = false;   // the connection is suspended until there is news
  Clock::time_point last_sent = Clock::now();
};

EventStream::EventStream(RunShelf& shelf, std::chrono::milliseconds interval,
                         std::chrono::milliseconds sign_of_life)
    : shelf_(shelf),
      interval_(interval),
      sign_of_life_(sign_of_life),
      thread_([this] { follow(); }) {}

EventStream::~EventStream() { thread_.join(); }

void EventStream::resume(Reader& reader) {
  if (std::exchange(reader.waits, false)) {
    MHD_resume_connection(reader.connection);
  }
}

void EventStream::stop() {
  constexpr auto kPatience = std::chrono::milliseconds(300);
  std::unique_lock lock(mutex_);
  look(lock);
  for (Reader* reader : readers_) resume(*reader);
  changed_.wait_for(lock, kPatience, [this] {
    return std::ranges::all_of(readers_, [this](const Reader* reader) {
      return reader->sending == nullptr && reader->seen == newest_;
    });
  });
  is_over_ = true;
  for (Reader* reader : readers_) resume(*reader);
  changed_.notify_all();
}

MHD_Response* EventStream::subscribe(MHD_Connection* connection) {
  auto reader = std::make_unique<Reader>();
  reader->stream = this;
  reader->connection = connection;
  constexpr size_t kBlock = 16 << 10;
  MHD_Response* const response = MHD_create_response_from_callback(
      MHD_SIZE_UNKNOWN, kBlock, &EventStream::read, reader.get(),
      &EventStream::release);
  if (response == nullptr) return nullptr;
  std::unique_lock lock(mutex_);
  // Without readers the text was not kept up to date.
  if (readers_.empty()) look(lock);
  readers_.insert(reader.release());
  changed_.notify_all();
  return response;
}

ssize_t EventStream::read(void* reader, uint64_t, char* buffer, size_t max) {
  auto* const one = static_cast<Reader*>(reader);
  return one->stream->fill(*one, buffer, max);
}

void EventStream::release(void* reader) {
  const std::unique_ptr<Reader> one(static_cast<Reader*>(reader));
  const std::lock_guard lock(one->stream->mutex_);
  one->stream->readers_.erase(one.get());
}

ssize_t EventStream::fill(Reader& reader, char* buffer, size_t max) {
  static const Text kAlive = std::make_shared<const std::string>(": alive\n\n");
  const std::lock_guard lock(mutex_);
  if (is_over_) return MHD_CONTENT_READER_END_OF_STREAM;
  if (reader.sending == nullptr) {
    const Clock::time_point now = Clock::now();
    if (reader.seen != newest_) {
      reader.seen = reader.sending = newest_;
    } else if (now - reader.last_sent >= sign_of_life_) {
      reader.sending = kAlive;
    } else {
      // Without the suspension the server would call this function again at
      // once.
      reader.waits = true;
      MHD_suspend_connection(reader.connection);
      return 0;
    }
    reader.num_sent = 0;
    reader.last_sent = now;
  }
  const size_t count = std::min(max, reader.sending->size() - reader.num_sent);
  std::memcpy(buffer, reader.sending->data() + reader.num_sent, count);
  reader.num_sent += count;
  if (reader.num_sent == reader.sending->size()) {
    reader.sending.reset();
    changed_.notify_all();
  }
  return static_cast<ssize_t>(count);
}

void EventStream::look(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  Text text;
  try {
    text = std::make_shared<const std::string>(
        cat("event: changed\ndata: ", shelf_.news(), "\n\n"));
  } catch (const std::exception&) {
    // Keeps the old text. A fault in the run's files must not stop the
    // training.
  }
  lock.lock();
  if (text && (newest_ == nullptr || *newest_ != *text)) newest_ = text;
}

void EventStream::follow() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    changed_.wait(lock, [this] { return is_over_ || !readers_.empty(); });
    changed_.wait_for(lock, interval_, [this] { return is_over_; });
    if (is_over_) return;
    look(lock);
    const Clock::time_point now = Clock::now();
    for (Reader* reader : readers_) {
      const bool has_news =
          reader->seen != newest_ || now - reader->last_sent >= sign_of_life_;
      if (has_news) resume(*reader);
    }
  }
}

}  // namespace headroom::page
