#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <vector>

namespace nimble {

// Hears of every allocation the framework makes on a thread while it is installed there.
class AllocationLog : public c10::MemoryReportingInfoBase {
 public:
  bool is_live(const void* memory) const { return live_.contains(memory); }
  size_t peak_bytes() const { return peak_; }

  void reportMemoryUsage(void* memory, int64_t bytes, size_t, size_t, c10::Device) override {
    if (paused_) return;
    if (bytes >= 0) {
      since_mark_.push_back(memory);
      live_[memory] = static_cast<size_t>(bytes);
      held_ += static_cast<size_t>(bytes);
      peak_ = std::max(peak_, held_);
    } else if (auto found = live_.find(memory); found != live_.end()) {
      held_ -= found->second;
      live_.erase(found);
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  // Counts the allocations of one op: which of those since mark() got this address last, or -1.
  void mark() { since_mark_.clear(); }
  int32_t index_since_mark(const void* memory) const {
    for (size_t i = since_mark_.size(); i-- > 0;)
      if (since_mark_[i] == memory) return static_cast<int32_t>(i);
    return -1;
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
  std::unordered_map<const void*, size_t> live_;
  std::vector<const void*> since_mark_;
  size_t held_ = 0;
  size_t peak_ = 0;
  bool paused_ = false;
};

}  // namespace nimble
