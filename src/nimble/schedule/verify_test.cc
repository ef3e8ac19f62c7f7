#include "nimble/schedule/verify.h"

#include <gtest/gtest.h>

#include "nimble/schedule/bounded.h"
#include "nimble/schedule/build.h"
#include "nimble/schedule/random_dag.h"

namespace nimble {
namespace {

bool has_byte(const ByteSet& set, int64_t byte) {
  return set.begin <= byte && byte < set.end &&
         (set.period == 0 || (byte - set.begin) % set.period < set.width);
}

TEST(HaveCommonByte, AgreesWithEveryByteAndWithByteSet) {
  std::mt19937 rng(21);
  constexpr int64_t kBytes = 150;
  const auto random_set = [&] {
    ByteSet set;
    set.begin = static_cast<int64_t>(rng() % kBytes);
    set.end = set.begin + static_cast<int64_t>(rng() % (kBytes - set.begin + 1));
    set.period = static_cast<int64_t>(rng() % 14);
    if (set.period > 0) set.width = 1 + static_cast<int64_t>(rng() % set.period);
    return set;
  };
  size_t common = 0, apart = 0, finer_than_byte_set = 0;
  for (int round = 0; round < 200000; ++round) {
    const ByteSet a = random_set();
    const ByteSet b = random_set();
    bool expected = false;
    for (int64_t byte = 0; byte < kBytes && !expected; ++byte)
      expected = has_byte(a, byte) && has_byte(b, byte);
    ASSERT_EQ(have_common_byte(a, b), expected);
    ASSERT_EQ(have_common_byte(b, a), expected);
    if (expected) {
      ASSERT_TRUE(a.may_overlap(b));
    }
    const bool differ = a.period != 0 && b.period != 0 && a.period != b.period;
    if (!differ) {
      ASSERT_EQ(a.may_overlap(b), expected);
    }
    ++(expected ? common : apart);
    finer_than_byte_set += !expected && a.may_overlap(b);
  }
  for (size_t count : {common, apart, finer_than_byte_set}) EXPECT_GT(count, 100u);
}

TEST(HaveCommonByte, TakesLittleTimeForLargeSets) {
  // Channels 0 to 3 and 4 to 7 of 8 in a petabyte; walking it would never end.
  constexpr int64_t kEnd = int64_t{1} << 50;
  EXPECT_FALSE(have_common_byte({0, kEnd, 32, 16}, {16, kEnd, 32, 16}));
  EXPECT_FALSE(have_common_byte({0, kEnd, 32, 16}, {16, kEnd, 96, 16}));
  EXPECT_TRUE(have_common_byte({0, kEnd, 32, 17}, {16, kEnd, 96, 16}));
}

// The definition of a wrong schedule, written down without any thought for time.
class Reference {
 public:
  explicit Reference(const Schedule& schedule)
      : schedule_(schedule),
        size_(schedule.tasks.size()),
        before_(size_, std::vector<bool>(size_, false)) {
    for (const auto& stream : schedule.streams) {
      for (size_t i = 0; i < stream.size(); ++i) {
        for (size_t j = 0; j < i; ++j) before_[stream[j].task.index][stream[i].task.index] = true;
        for (const Wait& wait : stream[i].waits)
          before_[schedule.streams[wait.stream.index][wait.step].task.index][stream[i].task.index] =
              true;
      }
    }
    for (size_t via = 0; via < size_; ++via)
      for (size_t from = 0; from < size_; ++from)
        if (before_[from][via])
          for (size_t to = 0; to < size_; ++to)
            if (before_[via][to]) before_[from][to] = true;
  }

  bool is_wrong() const {
    for (size_t task = 0; task < size_; ++task)
      if (before_[task][task]) return true;  // a deadlock
    for (size_t a = 0; a < size_; ++a)
      for (size_t b = a + 1; b < size_; ++b)
        if (!before_[a][b] && must_keep_order(schedule_.tasks[a], schedule_.tasks[b])) return true;
    const auto& places = schedule_.placements;
    for (uint32_t a = 0; a < places.size(); ++a) {
      if (places[a].in_arena && places[a].offset + places[a].bytes > schedule_.arena_bytes)
        return true;
      for (uint32_t b = 0; b < places.size(); ++b)
        if (a != b && share_bytes(places[a], places[b]) && !is_before(a, b) && !is_before(b, a))
          return true;
    }
    return false;
  }

 private:
  bool must_keep_order(const Task& a, const Task& b) const {
    for (const Touch& x : a.touches)
      for (const Touch& y : b.touches) {
        if (x.memory != y.memory) continue;
        if (schedule_.placements[x.memory.index].order_only) return true;
        if (!x.writes && !y.writes) continue;
        for (int64_t byte = x.bytes.begin; byte < x.bytes.end; ++byte)
          if (has_byte(x.bytes, byte) && has_byte(y.bytes, byte)) return true;
      }
    return false;
  }

  static bool share_bytes(const Placement& a, const Placement& b) {
    return a.in_arena && b.in_arena &&
           std::max(a.offset, b.offset) < std::min(a.offset + a.bytes, b.offset + b.bytes);
  }

  bool uses(size_t task, uint32_t memory) const {
    for (const Touch& touch : schedule_.tasks[task].touches)
      if (touch.memory.index == memory && touch.bytes.begin < touch.bytes.end) return true;
    return false;
  }

  bool is_before(uint32_t a, uint32_t b) const {
    for (size_t x = 0; x < size_; ++x)
      for (size_t y = 0; y < size_; ++y)
        if (uses(x, a) && uses(y, b) && !before_[x][y]) return false;
    return true;
  }

  const Schedule& schedule_;
  size_t size_;
  std::vector<std::vector<bool>> before_;
};

Schedule random_schedule(std::mt19937& rng, size_t max_ops) {
  const Graph graph = testing::random_graph(rng, max_ops);
  const Dag dag = dependency_dag(graph);
  const std::vector<double> costs = testing::random_costs(rng, dag.size());
  switch (rng() % 3) {
    case 0:
      return build_schedule(graph, assign_unbounded_streams(dag), costs).schedule;
    case 1:
      return build_schedule(graph, testing::random_assignment(rng, dag, 5), costs).schedule;
    default: {
      const BoundedOptions options{.workers = 3, .wait_ns = 20, .search_steps = 50};
      const auto bounded = assign_bounded_streams(dag, costs, options);
      return build_schedule(graph, bounded.assignment, costs).schedule;
    }
  }
}

// How many mutants were really wrong, and how many harmless. A test without both proves nothing.
struct Tally {
  size_t wrong = 0;
  size_t harmless = 0;

  void check(const Schedule& mutant) {
    const bool expected = Reference(mutant).is_wrong();
    const std::vector<std::string> violations = verify_schedule(mutant);
    ASSERT_EQ(!violations.empty(), expected)
        << (violations.empty() ? "a wrong schedule passes" : violations[0]);
    ++(expected ? wrong : harmless);
  }
};

TEST(VerifyMutants, EveryDroppedWaitIsFound) {
  std::mt19937 rng(14);
  Tally tally;
  for (int round = 0; round < 400; ++round) {
    Schedule schedule = random_schedule(rng, 40);
    ASSERT_FALSE(Reference(schedule).is_wrong());
    ASSERT_EQ(verify_schedule(schedule), std::vector<std::string>());
    for (auto& stream : schedule.streams) {
      for (Step& step : stream) {
        const std::vector<Wait> waits = step.waits;
        for (size_t drop = 0; drop < waits.size(); ++drop) {
          step.waits.erase(step.waits.begin() + static_cast<ptrdiff_t>(drop));
          ASSERT_NO_FATAL_FAILURE(tally.check(schedule));
          step.waits = waits;
        }
      }
    }
  }
  EXPECT_GT(tally.wrong, 100u);
  EXPECT_EQ(tally.harmless, 0u) << "the builder makes waits that nothing needs";
}

TEST(VerifyMutants, EveryWaitMadeTooWeakOrTooStrongIsJudgedRight) {
  std::mt19937 rng(15);
  Tally tally;
  for (int round = 0; round < 4000; ++round) {
    Schedule schedule = random_schedule(rng, 40);
    auto& stream = schedule.streams[rng() % schedule.streams.size()];
    auto& waits = stream[rng() % stream.size()].waits;
    if (waits.empty()) waits.emplace_back();
    Wait& wait = waits[rng() % waits.size()];
    if (!wait.stream.valid() || testing::random_chance(rng, 0.5))
      wait.stream = StreamId(rng() % schedule.streams.size());
    wait.step = static_cast<uint32_t>(rng() % schedule.streams[wait.stream.index].size());
    ASSERT_NO_FATAL_FAILURE(tally.check(schedule));
  }
  EXPECT_GT(tally.wrong, 100u);
  EXPECT_GT(tally.harmless, 100u);
}

TEST(VerifyMutants, EverySwapOfStepsThatMattersIsFound) {
  std::mt19937 rng(16);
  Tally tally;
  for (int round = 0; round < 5000; ++round) {
    Schedule schedule = random_schedule(rng, 40);
    auto& one = schedule.streams[rng() % schedule.streams.size()];
    auto& other =
        testing::random_chance(rng, 0.7) ? one : schedule.streams[rng() % schedule.streams.size()];
    Step& a = one[rng() % one.size()];
    Step& b = other[rng() % other.size()];
    if (testing::random_chance(rng, 0.5)) {
      std::swap(a, b);
    } else {
      std::swap(a.task, b.task);
    }
    ASSERT_NO_FATAL_FAILURE(tally.check(schedule));
  }
  EXPECT_GT(tally.wrong, 100u);
  EXPECT_GT(tally.harmless, 100u);
}

TEST(VerifyMutants, EveryMovedMemoryThatMattersIsFound) {
  std::mt19937 rng(17);
  Tally tally;
  for (int round = 0; round < 5000; ++round) {
    Schedule schedule = random_schedule(rng, 40);
    std::vector<Placement*> in_arena;
    for (Placement& placement : schedule.placements)
      if (placement.in_arena) in_arena.push_back(&placement);
    if (in_arena.size() < 2) continue;
    Placement& moved = *in_arena[rng() % in_arena.size()];
    const Placement& onto = *in_arena[rng() % in_arena.size()];
    moved.offset = onto.offset + rng() % (onto.bytes + 1);
    if (testing::random_chance(rng, 0.8))
      schedule.arena_bytes = std::max(schedule.arena_bytes, moved.offset + moved.bytes);
    ASSERT_NO_FATAL_FAILURE(tally.check(schedule));
  }
  EXPECT_GT(tally.wrong, 100u);
  EXPECT_GT(tally.harmless, 100u);
}

// Small schedules by hand: every kind of violation has its sentence.

// Two tasks that write memory 0, one after the other on one stream.
Schedule two_writers() {
  Schedule schedule;
  schedule.tasks.resize(2);
  schedule.tasks[0] = {.label = "first", .module = "", .touches = {{MemoryId(0), {0, 64}, true}}};
  schedule.tasks[1] = {.label = "second", .module = "", .touches = {{MemoryId(0), {32, 96}, true}}};
  schedule.streams = {{{TaskId(0), {}}, {TaskId(1), {}}}};
  schedule.placements = {{.in_arena = true, .offset = 0, .bytes = 96}};
  schedule.arena_bytes = 96;
  return schedule;
}

// The same on two streams, with one wait.
Schedule two_streams() {
  Schedule schedule = two_writers();
  schedule.streams = {{{TaskId(0), {}}}, {{TaskId(1), {{StreamId(0), 0}}}}};
  return schedule;
}

void expect_violation(const Schedule& schedule, const std::string& part) {
  const std::vector<std::string> violations = verify_schedule(schedule);
  ASSERT_EQ(violations.size(), 1u) << part;
  EXPECT_NE(violations[0].find(part), std::string::npos) << violations[0];
}

TEST(Verify, AcceptsCorrectSchedules) {
  EXPECT_TRUE(verify_schedule(Schedule()).empty());
  EXPECT_TRUE(verify_schedule(two_writers()).empty());
  EXPECT_TRUE(verify_schedule(two_streams()).empty());
}

TEST(Verify, FindsMissingAndRepeatedTasks) {
  Schedule missing = two_writers();
  missing.streams[0].pop_back();
  expect_violation(missing, "task 1 (second) stands on 0 steps");
  Schedule repeated = two_writers();
  repeated.streams.push_back({{TaskId(1), {}}});
  expect_violation(repeated, "task 1 (second) stands on 2 steps");
  Schedule unknown = two_writers();
  unknown.streams[0].push_back({TaskId(7), {}});
  expect_violation(unknown, "there is no task 7");
  unknown.streams[0].back().task = TaskId();
  EXPECT_EQ(verify_schedule(unknown).size(), 1u);
}

TEST(Verify, FindsWaitsForStepsThatDoNotExist) {
  Schedule schedule = two_streams();
  schedule.streams[1][0].waits = {{StreamId(0), 1}};
  expect_violation(schedule, "does not exist");
  schedule.streams[1][0].waits = {{StreamId(2), 0}};
  expect_violation(schedule, "does not exist");
}

TEST(Verify, FindsDeadlocks) {
  Schedule itself = two_streams();
  itself.streams[1][0].waits.push_back({StreamId(1), 0});
  expect_violation(itself, "deadlock: stream 1");
  Schedule each_other = two_streams();
  each_other.streams[0][0].waits = {{StreamId(1), 0}};
  EXPECT_EQ(verify_schedule(each_other).size(), 2u);
}

TEST(Verify, FindsUnorderedWrites) {
  Schedule schedule = two_streams();
  schedule.streams[1][0].waits.clear();
  expect_violation(schedule, "task 1 (second) does not wait for task 0 (first)");
  schedule.tasks[1].touches[0].bytes.begin = 64;
  EXPECT_TRUE(verify_schedule(schedule).empty()) << "they have no byte in common";
}

TEST(Verify, FindsTasksInTheWrongOrder) {
  Schedule schedule = two_writers();
  std::swap(schedule.streams[0][0], schedule.streams[0][1]);
  expect_violation(schedule, "task 1 (second) does not wait for task 0 (first)");
}

TEST(Verify, ReadersNeedNoOrderAmongThemselves) {
  Schedule schedule = two_streams();
  schedule.streams[1][0].waits.clear();
  for (Task& task : schedule.tasks) task.touches[0].writes = false;
  EXPECT_TRUE(verify_schedule(schedule).empty());
}

TEST(Verify, EmptyTouchesConflictWithNothing) {
  Schedule schedule = two_streams();
  schedule.streams[1][0].waits.clear();
  schedule.tasks[1].touches[0].bytes.end = 32;
  EXPECT_TRUE(verify_schedule(schedule).empty());
}

TEST(Verify, OtherBytesOfTheSamePeriodConflictWithNothing) {
  Schedule schedule = two_streams();
  schedule.streams[1][0].waits.clear();
  schedule.tasks[0].touches[0].bytes = {0, 84, 16, 4};
  schedule.tasks[1].touches[0].bytes = {4, 96, 16, 12};
  EXPECT_TRUE(verify_schedule(schedule).empty());
  schedule.tasks[1].touches[0].bytes.width = 13;
  expect_violation(schedule, "task 1 (second) does not wait for task 0 (first)");
  schedule.tasks[1].touches[0].bytes.width = 17;
  expect_violation(schedule, "task 1 (second) touches 17 of every 16 bytes");
}

TEST(Verify, OrderOnlyMemoriesOrderEveryPairOfTouches) {
  Schedule schedule = two_streams();
  schedule.placements = {{.order_only = true}};
  for (Task& task : schedule.tasks) task.touches = {{MemoryId(0), {0, 0}, false}};
  EXPECT_TRUE(verify_schedule(schedule).empty());
  schedule.streams[1][0].waits.clear();
  expect_violation(schedule, "task 1 (second) does not wait for task 0 (first)");
}

TEST(Verify, FindsSharedBytesOfTheArena) {
  Schedule schedule = two_streams();
  schedule.tasks[1].touches = {{MemoryId(1), {0, 64}, true}};
  schedule.placements.push_back({.in_arena = true, .offset = 32, .bytes = 64});
  EXPECT_TRUE(verify_schedule(schedule).empty()) << "one after the other";
  schedule.streams[1][0].waits.clear();
  expect_violation(schedule, "memories 0 and 1 share bytes");
  schedule.placements[1].in_arena = false;
  EXPECT_TRUE(verify_schedule(schedule).empty());
}

TEST(Verify, SharedBytesFollowTheStreamsNotTheRecordedOrder) {
  Schedule schedule = two_writers();
  schedule.tasks = {{.label = "a", .module = "", .touches = {{MemoryId(0), {0, 64}, true}}},
                    {.label = "b", .module = "", .touches = {{MemoryId(1), {0, 64}, true}}},
                    {.label = "c", .module = "", .touches = {{MemoryId(0), {0, 64}, false}}}};
  schedule.streams = {{{TaskId(0), {}}, {TaskId(2), {}}, {TaskId(1), {}}}};
  schedule.placements = {{.in_arena = true, .bytes = 64}, {.in_arena = true, .bytes = 64}};
  EXPECT_TRUE(verify_schedule(schedule).empty());
  std::swap(schedule.streams[0][1], schedule.streams[0][2]);
  expect_violation(schedule, "memories 0 and 1 share bytes");
}

TEST(Verify, FindsWhatLiesOutside) {
  Schedule arena = two_writers();
  arena.arena_bytes = 95;
  expect_violation(arena, "outside the arena");
  arena.placements[0].offset = SIZE_MAX - 10;
  expect_violation(arena, "outside the arena");
  Schedule touch = two_writers();
  touch.placements[0].bytes = 95;
  expect_violation(touch, "task 1 (second) touches bytes [32, 96) of memory 0, which has 95");
  Schedule memory = two_writers();
  memory.tasks[0].touches[0].memory = MemoryId(5);
  expect_violation(memory, "touches memory 5, which does not exist");
}

}  // namespace
}  // namespace nimble
