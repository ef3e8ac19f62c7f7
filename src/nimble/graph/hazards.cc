#include "nimble/graph/hazards.h"

#include <algorithm>

namespace nimble {
namespace {

struct Access {
  OpId op;
  ByteSet bytes;
};

// The accesses of one memory that a later one may still have to wait for.
class OpenAccesses {
 public:
  explicit OpenAccesses(std::vector<Edge>& edges) : edges_(edges) {}

  void read(const Access& access) {
    order_after(writes_, access);
    reads_.push_back(access);
  }

  void write(const Access& access) {
    order_after(reads_, access);
    order_after(writes_, access);
    // Whoever conflicts with a covered access conflicts with this write too.
    auto covered = [&](const Access& open) {
      return open.op != access.op && access.bytes.covers(open.bytes);
    };
    std::erase_if(reads_, covered);
    std::erase_if(writes_, covered);
    writes_.push_back(access);
  }

 private:
  void order_after(const std::vector<Access>& open, const Access& access) {
    for (const Access& earlier : open)
      if (earlier.op != access.op && earlier.bytes.may_overlap(access.bytes))
        edges_.push_back({earlier.op, access.op});
  }

  std::vector<Edge>& edges_;
  std::vector<Access> reads_;
  std::vector<Access> writes_;
};

}  // namespace

std::vector<Edge> find_hazards(const Graph& graph) {
  std::vector<Edge> edges;
  std::vector<OpenAccesses> open(graph.memories.size(), OpenAccesses(edges));
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    // Reads first: an op that updates in place reads before it writes.
    for (bool writing : {false, true}) {
      for (const Operand& operand : graph.ops[i].operands) {
        if (writing ? !operand.writes : !operand.reads) continue;
        const Access access{OpId(i), graph.bytes_touched(operand)};
        OpenAccesses& memory = open[operand.memory.index];
        writing ? memory.write(access) : memory.read(access);
      }
    }
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

}  // namespace nimble
