#include "deploy/page/event_stream.h"

#include <microhttpd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

namespace headroom::page {

struct EventStream::Reader {
  EventStream* stream = nullptr;
  MHD_Connection* connection = nullptr;
  std::string id;
  uint64_t seen = 0;    // the version that was sent last
  Text sending;         // nullptr if nothing is being sent
  size_t num_sent = 0;  // bytes of it that were sent
  bool waits = false;   // its connection is suspended
  Clock::time_point last_sent;
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
  shelf_.expire();
  std::unique_lock lock(mutex_);
  publish_all(lock);
  for (Reader* reader : readers_) resume(*reader);
  changed_.wait_for(lock, kPatience, [this] {
    return std::ranges::all_of(readers_, [this](const Reader* reader) {
      return reader->sending == nullptr &&
             reader->seen == topics_.at(reader->id).version;
    });
  });
  is_over_ = true;
  for (Reader* reader : readers_) resume(*reader);
  changed_.notify_all();
}

MHD_Response* EventStream::subscribe(const std::string& id,
                                     MHD_Connection* connection) {
  const Text changes = shelf_.changes(id);
  if (changes == nullptr) return nullptr;
  auto reader = std::make_unique<Reader>();
  reader->stream = this;
  reader->connection = connection;
  reader->id = id;
  reader->last_sent = Clock::now();
  constexpr size_t kBlock = 16 << 10;
  MHD_Response* const response = MHD_create_response_from_callback(
      MHD_SIZE_UNKNOWN, kBlock, &EventStream::read, reader.get(),
      &EventStream::release);
  if (response == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  publish(id, changes);
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
  EventStream& stream = *one->stream;
  const std::lock_guard lock(stream.mutex_);
  stream.readers_.erase(one.get());
  const bool is_last = std::ranges::none_of(
      stream.readers_,
      [&](const Reader* other) { return other->id == one->id; });
  if (is_last) stream.topics_.erase(one->id);
}

ssize_t EventStream::fill(Reader& reader, char* buffer, size_t max) {
  static const Text kAlive = std::make_shared<const std::string>(": alive\n\n");
  const std::lock_guard lock(mutex_);
  if (is_over_) return MHD_CONTENT_READER_END_OF_STREAM;
  if (reader.sending == nullptr) {
    const Clock::time_point now = Clock::now();
    const Topic& topic = topics_.at(reader.id);
    if (topic.version != reader.seen) {
      reader.seen = topic.version;
      reader.sending = topic.text;
    } else if (now - reader.last_sent >= sign_of_life_) {
      reader.sending = kAlive;
    } else {
      // Without this the server would call again at once.
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

void EventStream::publish(const std::string& id, const Text& changes) {
  Topic& topic = topics_[id];
  std::string text = "event: changed\ndata: " + *changes + "\n\n";
  if (topic.text != nullptr && *topic.text == text) return;
  topic.text = std::make_shared<const std::string>(std::move(text));
  // Versions rise over all topics, so a topic that is removed and made again
  // has a new version for every reader.
  topic.version = ++newest_version_;
}

void EventStream::publish_all(std::unique_lock<std::mutex>& lock) {
  std::set<std::string> ids;
  for (const Reader* reader : readers_) ids.insert(reader->id);
  for (const std::string& id : ids) {
    if (is_over_) return;
    try {
      lock.unlock();
      const Text changes = shelf_.changes(id);
      lock.lock();
      if (changes != nullptr && topics_.contains(id)) publish(id, changes);
    } catch (const std::exception&) {
      // Keep the old text. Training continues whatever is wrong with its files.
      if (!lock.owns_lock()) lock.lock();
    }
  }
}

void EventStream::follow() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    changed_.wait(lock, [this] { return is_over_ || !readers_.empty(); });
    changed_.wait_for(lock, interval_, [this] { return is_over_; });
    publish_all(lock);
    const Clock::time_point now = Clock::now();
    for (Reader* reader : readers_) {
      const bool has_news = topics_.at(reader->id).version != reader->seen ||
                            now - reader->last_sent >= sign_of_life_;
      if (has_news) resume(*reader);
    }
  }
}

}  // namespace headroom::page
