#include "nimble/torch/cuda/captured_order.h"

#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <unordered_map>

#include "nimble/base/error.h"
#include "nimble/schedule/bit_matrix.h"

namespace nimble {
namespace {

struct CaptureInfo {
  cudaGraph_t graph = nullptr;
  std::vector<const void*> dependencies;
};

CaptureInfo info_of(const c10::cuda::CUDAStream& stream) {
  CaptureInfo info;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  C10_CUDA_CHECK(
      cudaStreamGetCaptureInfo(stream, &status, &id, &info.graph, &nodes, &edges, &count));
  if (status == cudaStreamCaptureStatusActive && nodes)
    info.dependencies.assign(nodes, nodes + count);
  return info;
}

// Which node comes behind which others.
class Ancestors {
 public:
  explicit Ancestors(cudaGraph_t graph) {
    size_t count = 0;
    C10_CUDA_CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
    std::vector<cudaGraphNode_t> from(count);
    std::vector<cudaGraphNode_t> to(count);
    std::vector<cudaGraphEdgeData> data(count);
    if (count > 0)
      C10_CUDA_CHECK(cudaGraphGetEdges(graph, from.data(), to.data(), data.data(), &count));
    std::vector<std::vector<uint32_t>> successors;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t before = index_of(from[i]);
      const uint32_t after = index_of(to[i]);
      successors.resize(numbers_.size());
      successors[before].push_back(after);
    }
    successors.resize(numbers_.size());
    rows_ = BitMatrix(numbers_.size(), numbers_.size());
    spread(successors);
  }

  // Whether `before` is `node`, or comes before it.
  bool covers(const void* before, const void* node) const {
    if (before == node) return true;
    const auto a = numbers_.find(before);
    const auto b = numbers_.find(node);
    return a != numbers_.end() && b != numbers_.end() && rows_.test(b->second, a->second);
  }

 private:
  uint32_t index_of(const void* node) {
    return numbers_.try_emplace(node, static_cast<uint32_t>(numbers_.size())).first->second;
  }

  // In topological order: what a node has behind it, all that follow it have, too.
  void spread(const std::vector<std::vector<uint32_t>>& successors) {
    std::vector<size_t> missing(successors.size());
    for (const auto& next : successors)
      for (uint32_t node : next) ++missing[node];
    std::vector<uint32_t> ready;
    for (uint32_t node = 0; node < missing.size(); ++node)
      if (missing[node] == 0) ready.push_back(node);
    while (!ready.empty()) {
      const uint32_t node = ready.back();
      ready.pop_back();
      for (uint32_t next : successors[node]) {
        add_bits(rows_.row(next), rows_.row(node));
        rows_.set(next, node);
        if (--missing[next] == 0) ready.push_back(next);
      }
    }
  }

  std::unordered_map<const void*, uint32_t> numbers_;
  BitMatrix rows_{0, 0};
};

struct PlacedTouch {
  DeviceTouch touch;
  uint32_t op;
};

constexpr size_t kMostFaults = 10;

}  // namespace

void CapturedOrder::begin_op(const c10::cuda::CUDAStream& stream, std::string name) {
  ops_.push_back({std::move(name), info_of(stream).dependencies, {}, {}});
}

void CapturedOrder::end_op(const c10::cuda::CUDAStream& stream, std::vector<DeviceTouch> touches) {
  ops_.back().last = info_of(stream).dependencies;
  ops_.back().touches = std::move(touches);
}

size_t CapturedOrder::count_nodes(const c10::cuda::CUDAStream& origin) {
  size_t count = 0;
  C10_CUDA_CHECK(cudaGraphGetNodes(info_of(origin).graph, nullptr, &count));
  return count;
}

std::vector<std::string> CapturedOrder::faults(const c10::cuda::CUDAStream& origin) const {
  const CaptureInfo end = info_of(origin);
  const Ancestors ancestors(end.graph);
  const auto all_before = [&](const std::vector<Node>& first, const std::vector<Node>& second) {
    return std::all_of(first.begin(), first.end(), [&](Node node) {
      return std::any_of(second.begin(), second.end(),
                         [&](Node other) { return ancestors.covers(node, other); });
    });
  };
  std::vector<std::string> found;
  std::vector<PlacedTouch> touches;
  for (uint32_t i = 0; i < ops_.size(); ++i) {
    const IssuedOp& op = ops_[i];
    if (op.last == op.behind) continue;  // it made no node
    for (const DeviceTouch& touch : op.touches)
      if (touch.begin < touch.end) touches.push_back({touch, i});
    if (!all_before(op.last, end.dependencies))
      found.push_back(message(op.name, " (op ", i, ") may run on when the graph has ended"));
  }
  std::sort(touches.begin(), touches.end(), [](const PlacedTouch& a, const PlacedTouch& b) {
    return a.touch.begin < b.touch.begin;
  });
  // Few ops touch a block, and many touches are of the same two ops.
  std::unordered_map<uint64_t, bool> known;
  for (size_t i = 0; i < touches.size(); ++i)
    for (size_t j = i + 1; j < touches.size(); ++j) {
      if (touches[j].touch.begin >= touches[i].touch.end) break;
      const uint32_t a = std::min(touches[i].op, touches[j].op);
      const uint32_t b = std::max(touches[i].op, touches[j].op);
      if (a == b || !(touches[i].touch.writes || touches[j].touch.writes)) continue;
      const auto [pair, is_new] = known.try_emplace((uint64_t{a} << 32) | b, true);
      if (!is_new) continue;
      if (!all_before(ops_[a].last, ops_[b].behind))
        found.push_back(message(ops_[a].name, " (op ", a, ") and ", ops_[b].name, " (op ", b,
                                ") touch the same memory and are not ordered"));
    }
  if (found.size() > kMostFaults) found.resize(kMostFaults);
  return found;
}

}  // namespace nimble
