#include "nimble/torch/uncounted_writes.h"

#include <pthread.h>

#include <mutex>
#include <unordered_map>

namespace nimble {
namespace {

using Counter = std::atomic<uint32_t>;

// Only of storages that somebody watches, and for as long.
std::mutex& lock() {
  static auto& mutex = *new std::mutex;
  static const int registered =
      pthread_atfork([] { lock().lock(); }, [] { lock().unlock(); }, [] { lock().unlock(); });
  (void)registered;
  return mutex;
}

std::unordered_map<const c10::StorageImpl*, std::weak_ptr<Counter>>& counters() {
  static auto& map = *new std::unordered_map<const c10::StorageImpl*, std::weak_ptr<Counter>>;
  return map;
}

}  // namespace

WriteCounter uncounted_writes(const c10::StorageImpl* storage) {
  const std::lock_guard guard(lock());
  std::erase_if(counters(), [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Counter>& known = counters()[storage];
  std::shared_ptr<Counter> counter = known.lock();
  if (!counter) known = counter = std::make_shared<Counter>(0);
  return counter;
}

void note_uncounted_write(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return;
  const std::lock_guard guard(lock());
  const auto found = counters().find(tensor.storage().unsafeGetStorageImpl());
  if (found == counters().end()) return;
  if (const auto counter = found->second.lock()) ++*counter;
}

}  // namespace nimble
