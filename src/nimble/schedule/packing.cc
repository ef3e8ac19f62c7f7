#include "nimble/schedule/packing.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace nimble {
namespace {

enum class Fit { kLowest, kTightest };

//   1. Several orders, each block into the lowest or the tightest gap that those before it leave:
//      no order is best for every program, and packing is cheap.
//   2. From the best: what lies on top goes first, and everything is packed again.
//
// Ends when it takes no more than all that is in use at once, or has tried for long enough.
class Packer {
 public:
  Packer(const std::vector<Block>& blocks, const Conflicts& conflicts, size_t lower_bound)
      : blocks_(blocks),
        conflicts_(conflicts),
        lower_bound_(lower_bound),
        results_(place_results(blocks)),
        result_bytes_(results_.empty() ? 0 : results_.back().end) {}

  Packing run() && {
    try_orders();
    for (size_t attempt = 0; attempt < kAttempts && goes_on(); ++attempt) lift_top(attempt);
    return std::move(best_);
  }

 private:
  static constexpr size_t kAttempts = 100;
  static constexpr size_t kMostWork = 20'000'000;  // blocks looked at: some 50 ms
  using Node = uint32_t;

  bool goes_on() const { return best_.bytes > lower_bound_ && work_ < kMostWork; }

  void try_orders() {
    std::vector<size_t> crowd(blocks_.size(), 0);  // bytes that a block has to stand beside
    for (Node block = 0; block < blocks_.size(); ++block)
      for_each_bit(conflicts_.row(block),
                   [&](Node other) { crowd[block] += blocks_[other].bytes; });
    const auto bytes = [&](Node block) { return blocks_[block].bytes; };
    const auto lifetime = [&](Node block) { return blocks_[block].lifetime(); };
    const auto area = [&](Node block) { return bytes(block) * lifetime(block); };
    try_order([&](Node a, Node b) { return bytes(a) > bytes(b); });
    try_order([&](Node a, Node b) { return area(a) > area(b); });
    try_order([&](Node a, Node b) { return lifetime(a) > lifetime(b); });
    try_order([&](Node a, Node b) { return crowd[a] > crowd[b]; });
    try_order([&](Node a, Node b) { return bytes(a) + crowd[a] > bytes(b) + crowd[b]; });
    try_order([&](Node a, Node b) { return a < b; });  // by first use
    try_order([&](Node a, Node b) { return blocks_[a].end > blocks_[b].end; });
  }

  template <class GoesFirst>
  void try_order(GoesFirst goes_first) {
    if (!goes_on()) return;
    std::vector<Node> order(blocks_.size());
    std::iota(order.begin(), order.end(), 0);
    std::erase_if(order, [&](Node block) { return blocks_[block].is_result; });
    std::stable_sort(order.begin(), order.end(), goes_first);
    for (Fit fit : {Fit::kLowest, Fit::kTightest}) {
      Packing packing = pack(order, fit, best_.bytes);
      if (packing.bytes < best_.bytes) {
        best_ = std::move(packing);
        order_ = order;
        fit_ = fit;
      }
    }
  }

  void lift_top(size_t attempt) {
    std::vector<Node> order = order_;
    const auto on_top = [&](Node block) {
      return best_.offsets[block] + blocks_[block].bytes == best_.bytes;
    };
    const auto top = std::find_if(order.begin(), order.end(), on_top);
    if (top == order.end()) return;  // a result
    // Sometimes only half of the way, so that not the same few take turns.
    const auto way = (top - order.begin()) >> (attempt % 4);
    std::rotate(top - way, top, top + 1);
    // As good is good enough: another top has its turn.
    Packing packing = pack(order, fit_, best_.bytes + 1);
    if (packing.bytes <= best_.bytes) {
      best_ = std::move(packing);
      order_ = std::move(order);
    }
  }

  // The first place from `from` on that does not lie across the end of the results.
  size_t on_one_side(size_t from, size_t bytes) const {
    return from < result_bytes_ && from + bytes > result_bytes_ ? result_bytes_ : from;
  }

  // Places blocks one after another. Gives up when it needs `limit`.
  Packing pack(const std::vector<Node>& order, Fit fit, size_t limit) {
    Packing packing{std::vector<size_t>(blocks_.size(), kNowhere), result_bytes_};
    placed_ = results_;
    for (const PlacedBlock& result : results_) packing.offsets[result.block] = result.begin;
    for (Node block : order) {
      const size_t bytes = blocks_[block].bytes;
      size_t free_from = 0;
      size_t offset = kNowhere;
      size_t tightest = kNowhere;
      for (const PlacedBlock& other : placed_) {
        if (!conflicts_.test(block, other.block)) continue;
        free_from = on_one_side(free_from, bytes);
        if (other.begin >= free_from + bytes && other.begin - free_from < tightest) {
          tightest = other.begin - free_from;
          offset = free_from;
          if (fit == Fit::kLowest || tightest == bytes) break;
        }
        free_from = std::max(free_from, other.end);
      }
      work_ += placed_.size();
      if (offset == kNowhere) offset = on_one_side(free_from, bytes);
      packing.offsets[block] = offset;
      packing.bytes = std::max(packing.bytes, offset + bytes);
      if (packing.bytes >= limit) return {};
      const auto place =
          std::upper_bound(placed_.begin(), placed_.end(), offset,
                           [](size_t at, const PlacedBlock& p) { return at < p.begin; });
      placed_.insert(place, {offset, offset + bytes, block});
    }
    return packing;
  }

  const std::vector<Block>& blocks_;
  const Conflicts& conflicts_;
  size_t lower_bound_;
  std::vector<PlacedBlock> results_;
  size_t result_bytes_;
  Packing best_;
  std::vector<Node> order_;  // that gave the best
  Fit fit_ = Fit::kLowest;
  std::vector<PlacedBlock> placed_;  // so far, by `begin`
  size_t work_ = 0;
};

}  // namespace

std::vector<PlacedBlock> place_results(const std::vector<Block>& blocks) {
  std::vector<PlacedBlock> results;
  size_t end = 0;
  for (uint32_t block = 0; block < blocks.size(); ++block) {
    if (!blocks[block].is_result) continue;
    results.push_back({end, end + blocks[block].bytes, block});
    end += blocks[block].bytes;
  }
  return results;
}

Packing pack_tightly(const std::vector<Block>& blocks, const Conflicts& conflicts,
                     size_t lower_bound) {
  return Packer(blocks, conflicts, lower_bound).run();
}

}  // namespace nimble
