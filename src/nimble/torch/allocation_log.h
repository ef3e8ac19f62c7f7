#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace nimble {

// What one thread's recorded run allocated. Frees may come from any thread, at any time.
class AllocationLog {
 public:
  // False if it does not want to hear of this one again.
  bool allocated(const void* memory, size_t bytes) {
    if (paused_) return false;
    std::lock_guard lock(mutex_);
    since_mark_.push_back(memory);
    live_[memory] = {bytes, false};
    held_ += bytes;
    peak_ = std::max(peak_, held_);
    return true;
  }

  void freed(const void* memory) {
    std::lock_guard lock(mutex_);
    const auto found = live_.find(memory);
    if (found == live_.end()) return;
    held_ -= found->second.bytes;
    live_.erase(found);
  }

  bool is_live(const void* memory) const {
    std::lock_guard lock(mutex_);
    return live_.contains(memory);
  }

  size_t peak_bytes() const { return peak_; }

  // Counts the allocations of one op: which of those since mark() got this address last, or -1.
  void mark() { since_mark_.clear(); }
  int32_t index_since_mark(const void* memory) const {
    for (size_t i = since_mark_.size(); i-- > 0;)
      if (since_mark_[i] == memory) return static_cast<int32_t>(i);
    return -1;
  }

  // What is left of the allocations since mark(), except for these, belongs to the op itself.
  void keep_inner(const std::vector<const void*>& results) {
    std::lock_guard lock(mutex_);
    for (const void* memory : since_mark_)
      if (const auto found = live_.find(memory); found != live_.end())
        found->second.is_inner = std::find(results.begin(), results.end(), memory) == results.end();
  }
  bool is_inner(const void* memory) const {
    std::lock_guard lock(mutex_);
    const auto found = live_.find(memory);
    return found != live_.end() && found->second.is_inner;
  }

  // For allocations that are the recorder's own.
  class Pause {
   public:
    explicit Pause(AllocationLog& log) : log_(log) { log_.paused_ = true; }
    ~Pause() { log_.paused_ = false; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    AllocationLog& log_;
  };

 private:
  mutable std::mutex mutex_;
  struct Block {
    size_t bytes = 0;
    bool is_inner = false;
  };
  std::unordered_map<const void*, Block> live_;
  std::vector<const void*> since_mark_;
  size_t held_ = 0;
  size_t peak_ = 0;
  bool paused_ = false;
};

}  // namespace nimble
