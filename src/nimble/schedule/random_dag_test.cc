#include "nimble/schedule/random_dag.h"

#include <gtest/gtest.h>

namespace nimble {
namespace {

// Whether two uses have no byte in common although neither ends before the other begins.
bool lie_between(const Graph& graph, const Operand& first, const Operand& second) {
  const ByteSet a = graph.bytes_touched(first);
  const ByteSet b = graph.bytes_touched(second);
  return !a.may_overlap(b) && std::max(a.begin, b.begin) < std::min(a.end, b.end);
}

// Tests on random programs prove little if the programs are malformed or all alike.
TEST(RandomGraph, IsConsistentAndHasEveryKindOfUse) {
  std::mt19937 rng(20);
  size_t overwrites = 0, updates = 0, partial_writes = 0, draws = 0, external_writes = 0;
  size_t empty_views = 0, renewed_buffers = 0, outputs = 0, parts = 0;
  size_t apart_in_common_bounds = 0;
  for (int round = 0; round < 200; ++round) {
    const Graph graph = testing::random_graph(rng, 60);
    std::vector<bool> written(graph.memories.size());
    std::vector<bool> buffer_seen(graph.memories.size());
    for (const Memory& memory : graph.memories) {
      renewed_buffers += buffer_seen[memory.buffer.index];
      buffer_seen[memory.buffer.index] = true;
    }
    for (uint32_t i = 0; i < graph.ops.size(); ++i) {
      for (const Operand& use : graph.ops[i].operands) {
        const Memory& memory = graph.memories[use.memory.index];
        const View& view = graph.views[use.view.index];
        ASSERT_EQ(view.buffer, memory.buffer);
        ASSERT_LE(view.desc.end_byte(), static_cast<int64_t>(memory.bytes));
        ASSERT_TRUE(use.reads || use.writes);
        ASSERT_EQ(use.writes, use.after.valid());
        if (use.before.valid()) {
          ASSERT_EQ(graph.values[use.before.index].memory, use.memory);
        }
        if (use.writes && use.after != use.before) {
          ASSERT_EQ(graph.values[use.after.index].producer, OpId(i));
        }
        if (memory.role == Role::kInput || memory.role == Role::kConstant) {
          ASSERT_FALSE(use.writes);
        }
        const bool is_new = memory.role == Role::kIntermediate && !written[use.memory.index];
        if (is_new) {
          ASSERT_TRUE(use.writes && !use.before.valid()) << "read before it was written";
          ASSERT_EQ(view.desc.end_byte(), static_cast<int64_t>(memory.bytes));
        }
        if (use.writes) written[use.memory.index] = true;
        if (use.part_bytes) {
          ASSERT_TRUE(bytes_of(view.desc).covers(*use.part_bytes));
          ASSERT_FALSE(use.part_bytes->empty());
          ++parts;
        }
        for (uint32_t earlier = 0; earlier < i; ++earlier)
          for (const Operand& other : graph.ops[earlier].operands)
            apart_in_common_bounds += use.memory == other.memory && lie_between(graph, use, other);
        overwrites += is_new;
        updates += use.reads && use.writes;
        partial_writes += use.writes && use.after == use.before;
        draws += memory.role == Role::kGenerator;
        external_writes += memory.role == Role::kExternal && use.writes;
        empty_views += memory.role != Role::kGenerator && view.desc.numel() == 0;
      }
    }
    ASSERT_TRUE(std::is_sorted(graph.edges.begin(), graph.edges.end()));
    for (const Port& port : graph.outputs) ASSERT_TRUE(graph.memories[port.memory.index].is_output);
    outputs += graph.outputs.size();
  }
  for (size_t count : {overwrites, updates, partial_writes, draws, external_writes, empty_views,
                       renewed_buffers, outputs, parts, apart_in_common_bounds})
    EXPECT_GT(count, 20u);
}

}  // namespace
}  // namespace nimble
