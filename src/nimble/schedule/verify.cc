#include "nimble/schedule/verify.h"

#include <algorithm>
#include <numeric>

#include "nimble/base/error.h"

namespace nimble {
namespace {

// The first byte of a set that is not before `at`, which is not before its begin; may lie behind
// its end.
int64_t next_byte(const ByteSet& set, int64_t at) {
  if (set.period == 0) return at;
  const int64_t since_start = (at - set.begin) % set.period;
  return since_start < set.width ? at : at - since_start + set.period;
}

class Verifier {
 public:
  explicit Verifier(const Schedule& schedule) : schedule_(schedule) {}

  std::vector<std::string> run() && {
    check_form();
    if (violations_.empty()) check_waits();
    if (!violations_.empty()) return std::move(violations_);  // no order to prove anything from
    gather_uses();
    for (uint32_t memory = 0; memory < uses_.size(); ++memory) {
      if (schedule_.placements[memory].order_only) {
        check_sequence(memory);
      } else {
        check_hazards(memory);
      }
    }
    check_arena();
    return std::move(violations_);
  }

 private:
  // A touch, seen from its memory.
  struct Use {
    uint32_t task;
    ByteSet bytes;
    bool writes;
  };

  template <class... Parts>
  void report(const Parts&... parts) {
    violations_.push_back(message(parts...));
  }
  std::string name(uint32_t task) const {
    return message("task ", task, " (", schedule_.tasks[task].label, ")");
  }

  // Everything that is an index points at something; every task stands on one stream.
  void check_form() {
    stream_of_.assign(schedule_.tasks.size(), 0);
    step_of_.assign(schedule_.tasks.size(), 0);
    std::vector<size_t> times_placed(schedule_.tasks.size(), 0);
    for (uint32_t s = 0; s < schedule_.streams.size(); ++s) {
      for (uint32_t k = 0; k < schedule_.streams[s].size(); ++k) {
        const Step& step = schedule_.streams[s][k];
        if (step.task.index >= schedule_.tasks.size()) {
          report("stream ", s, " step ", k, " has no task: there is no task ", step.task.index);
          continue;
        }
        ++times_placed[step.task.index];
        stream_of_[step.task.index] = s;
        step_of_[step.task.index] = k;
        for (const Wait& wait : step.waits)
          if (wait.stream.index >= schedule_.streams.size() ||
              wait.step >= schedule_.streams[wait.stream.index].size())
            report(name(step.task.index), " waits for stream ", wait.stream.index, " step ",
                   wait.step, ", which does not exist");
      }
    }
    for (uint32_t task = 0; task < schedule_.tasks.size(); ++task) {
      if (times_placed[task] != 1) report(name(task), " stands on ", times_placed[task], " steps");
      for (const Touch& touch : schedule_.tasks[task].touches) check_touch(task, touch);
    }
  }

  void check_touch(uint32_t task, const Touch& touch) {
    if (touch.memory.index >= schedule_.placements.size()) {
      report(name(task), " touches memory ", touch.memory.index, ", which does not exist");
      return;
    }
    const Placement& place = schedule_.placements[touch.memory.index];
    const ByteSet& bytes = touch.bytes;
    if (bytes.period < 0 || (bytes.period > 0 && (bytes.width < 1 || bytes.width > bytes.period)))
      report(name(task), " touches ", bytes.width, " of every ", bytes.period, " bytes of memory ",
             touch.memory.index);
    const bool in_range = bytes.begin >= 0 && bytes.end >= bytes.begin;
    const bool inside = !place.in_arena || bytes.begin == bytes.end ||
                        static_cast<size_t>(bytes.end) <= place.bytes;
    if (!in_range || !inside)
      report(name(task), " touches bytes [", bytes.begin, ", ", bytes.end, ") of memory ",
             touch.memory.index, ", which has ", place.bytes);
  }

  // Runs the streams as the workers would, and learns for every task how many steps of each stream
  // are surely done before it starts. A stream that stops short of its end waits for ever.
  void check_waits() {
    const size_t streams = schedule_.streams.size();
    done_before_.assign(schedule_.tasks.size() * streams, 0);
    std::vector<uint32_t> done(streams, 0);
    std::vector<std::vector<uint32_t>> sleepers(streams);  // by the stream they wait for
    std::vector<uint32_t> awake(streams);
    for (uint32_t s = 0; s < streams; ++s) awake[s] = s;
    while (!awake.empty()) {
      const uint32_t s = awake.back();
      awake.pop_back();
      const auto& stream = schedule_.streams[s];
      bool asleep = false;
      while (done[s] < stream.size() && !asleep) {
        const Step& step = stream[done[s]];
        for (const Wait& wait : step.waits) {
          if (done[wait.stream.index] > wait.step) continue;
          sleepers[wait.stream.index].push_back(s);
          asleep = true;
          break;
        }
        if (asleep) break;
        uint32_t* clock = done_before(step.task.index);
        if (done[s] > 0) learn_end_of(stream[done[s] - 1].task.index, clock);
        for (const Wait& wait : step.waits)
          learn_end_of(schedule_.streams[wait.stream.index][wait.step].task.index, clock);
        ++done[s];
        awake.insert(awake.end(), sleepers[s].begin(), sleepers[s].end());
        sleepers[s].clear();
      }
    }
    for (uint32_t s = 0; s < streams; ++s)
      if (done[s] < schedule_.streams[s].size())
        report("deadlock: stream ", s, " waits for ever before ",
               name(schedule_.streams[s][done[s]].task.index));
  }

  uint32_t* done_before(uint32_t task) {
    return done_before_.data() + task * schedule_.streams.size();
  }
  const uint32_t* done_before(uint32_t task) const {
    return done_before_.data() + task * schedule_.streams.size();
  }
  void learn_end_of(uint32_t task, uint32_t* clock) const {
    const uint32_t* known = done_before(task);
    for (size_t s = 0; s < schedule_.streams.size(); ++s) clock[s] = std::max(clock[s], known[s]);
    uint32_t& own = clock[stream_of_[task]];
    own = std::max(own, step_of_[task] + 1);
  }
  bool happens_before(uint32_t earlier, uint32_t later) const {
    return done_before(later)[stream_of_[earlier]] > step_of_[earlier];
  }

  void gather_uses() {
    uses_.resize(schedule_.placements.size());
    for (uint32_t task = 0; task < schedule_.tasks.size(); ++task)
      for (const Touch& touch : schedule_.tasks[task].touches)
        if (touch.bytes.begin < touch.bytes.end ||
            schedule_.placements[touch.memory.index].order_only)
          uses_[touch.memory.index].push_back({task, touch.bytes, touch.writes});

    const size_t streams = schedule_.streams.size();
    last_use_.assign(uses_.size() * streams, 0);
    known_by_all_.assign(uses_.size() * streams, UINT32_MAX);
    for (uint32_t memory = 0; memory < uses_.size(); ++memory) {
      for (const Use& use : uses_[memory]) {
        uint32_t& last = last_use_[memory * streams + stream_of_[use.task]];
        last = std::max(last, step_of_[use.task] + 1);
        for (size_t s = 0; s < streams; ++s) {
          uint32_t& known = known_by_all_[memory * streams + s];
          known = std::min(known, done_before(use.task)[s]);
        }
      }
    }
  }

  // All uses one after another: it is enough that neighbours are ordered.
  void check_sequence(uint32_t memory) {
    for (size_t i = 1; i < uses_[memory].size(); ++i) {
      const uint32_t earlier = uses_[memory][i - 1].task;
      const uint32_t later = uses_[memory][i].task;
      if (earlier != later && !happens_before(earlier, later))
        report_missing_wait(earlier, later, memory);
    }
  }

  // Every write against every other use; reads among themselves are free.
  void check_hazards(uint32_t memory) {
    const std::vector<Use>& uses = uses_[memory];
    for (size_t w = 0; w < uses.size(); ++w) {
      if (!uses[w].writes) continue;
      for (size_t i = 0; i < uses.size(); ++i) {
        if (uses[i].writes && i <= w) continue;  // two writes meet once
        if (uses[i].task == uses[w].task) continue;
        const auto [earlier, later] = std::minmax(uses[i].task, uses[w].task);
        if (happens_before(earlier, later) || !have_common_byte(uses[i].bytes, uses[w].bytes))
          continue;
        report_missing_wait(earlier, later, memory);
      }
    }
  }

  void report_missing_wait(uint32_t earlier, uint32_t later, uint32_t memory) {
    report(name(later), " does not wait for ", name(earlier), "; both use memory ", memory);
  }

  // What is in the arena, from the lowest byte up: each against those that it reaches into.
  void check_arena() {
    std::vector<uint32_t> by_offset;
    for (uint32_t memory = 0; memory < schedule_.placements.size(); ++memory) {
      const Placement& place = schedule_.placements[memory];
      if (!place.in_arena) continue;
      if (place.offset > schedule_.arena_bytes ||
          place.bytes > schedule_.arena_bytes - place.offset) {
        report("memory ", memory, " at [", place.offset, ", +", place.bytes,
               ") lies outside the arena of ", schedule_.arena_bytes, " bytes");
        continue;
      }
      const size_t results = schedule_.result_bytes;
      if (place.is_result ? place.offset + place.bytes > results
                          : place.offset < results && place.offset + place.bytes > results)
        report("memory ", memory, " at [", place.offset, ", +", place.bytes,
               ") lies across the end of the results at ", results);
      if (place.bytes > 0 && !uses_[memory].empty()) by_offset.push_back(memory);
    }
    std::sort(by_offset.begin(), by_offset.end(), [&](uint32_t a, uint32_t b) {
      return schedule_.placements[a].offset < schedule_.placements[b].offset;
    });
    for (size_t i = 0; i < by_offset.size(); ++i) {
      const Placement& place = schedule_.placements[by_offset[i]];
      for (size_t j = i + 1; j < by_offset.size() &&
                             schedule_.placements[by_offset[j]].offset < place.offset + place.bytes;
           ++j)
        check_shared_bytes(by_offset[i], by_offset[j]);
    }
  }

  void check_shared_bytes(uint32_t a, uint32_t b) {
    if (all_before(a, b) || all_before(b, a)) return;
    report("memories ", a, " and ", b, " share bytes of the arena, but not all uses of one (",
           name(uses_[a].front().task), " to ", name(uses_[a].back().task),
           ") come before all uses of the other (", name(uses_[b].front().task), " to ",
           name(uses_[b].back().task), ")");
  }

  // Everybody who uses `b` knows at its start that the last use of `a` on each stream is done. That
  // of a result never is.
  bool all_before(uint32_t a, uint32_t b) const {
    if (schedule_.placements[a].is_result) return false;
    const size_t streams = schedule_.streams.size();
    const uint32_t* last = last_use_.data() + a * streams;
    const uint32_t* known = known_by_all_.data() + b * streams;
    for (size_t s = 0; s < streams; ++s)
      if (known[s] < last[s]) return false;
    return true;
  }

  const Schedule& schedule_;
  std::vector<std::string> violations_;
  std::vector<uint32_t> stream_of_;     // by task
  std::vector<uint32_t> step_of_;       // by task
  std::vector<uint32_t> done_before_;   // by task, then stream: steps done when the task starts
  std::vector<std::vector<Use>> uses_;  // by memory, in recorded order
  // By memory, then stream, in steps counted from 1:
  std::vector<uint32_t> last_use_;      // the last that uses it
  std::vector<uint32_t> known_by_all_;  // the last that is done when any of its users starts
};

}  // namespace

// Goes from byte to byte, each time to the next one of the other set, until both name the same.
// What is common repeats with the least common multiple of the periods, so no further than that.
bool have_common_byte(const ByteSet& a, const ByteSet& b) {
  int64_t at = std::max(a.begin, b.begin);
  int64_t last = std::min(a.end, b.end);
  if (a.period > 0 && b.period > 0) {
    const int64_t factor = b.period / std::gcd(a.period, b.period);
    if (last - at > a.period && (last - at) / a.period > factor) last = at + a.period * factor;
  }
  while (at < last) {
    const int64_t of_a = next_byte(a, at);
    const int64_t of_b = next_byte(b, of_a);
    if (of_a == of_b) return of_a < last;
    at = of_b;
  }
  return false;
}

std::vector<std::string> verify_schedule(const Schedule& schedule) {
  return Verifier(schedule).run();
}

}  // namespace nimble
