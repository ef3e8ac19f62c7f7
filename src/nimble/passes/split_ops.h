#pragma once
#include <functional>
#include "nimble/graph/relink.h"
#include "nimble/kernels/kernel.h"
#include "nimble/passes/rewrite.h"
namespace nimble {
struct SplitInfo { Work work; double cost_ns; std::function<size_t(const Part&)> scratch_bytes; };
struct SplitOptions { size_t workers = 1; std::vector<SplitInfo> kernels; };
inline void split_ops(Graph& g, const SplitOptions& o) {
  uint32_t group = 0;
  for (Op& op : g.ops) { op.group = group++; if (!op.attributes) continue;
    const SplitInfo& i = o.kernels[op.kernel.index];
    if (size_t b = i.scratch_bytes(i.work.whole())) { TensorDesc d{.dtype={0,1,"Byte"},.sizes={(int64_t)b},.strides={1}}; op.operands.push_back(writing(add_memory(g,b), add_view(g,d))); } }
  relink(g);
}
}
