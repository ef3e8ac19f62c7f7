#include "nimble/schedule/matching.h"

#include <algorithm>
#include <bit>

namespace nimble {
namespace {

// Hopcroft-Karp: in every round, as many disjoint shortest augmenting paths as can be found.
// The right nodes of one distance are one row of bits, so a left node meets all its neighbours of
// that distance in one sweep over two rows.
class HopcroftKarp {
 public:
  explicit HopcroftKarp(const BitMatrix& pairs) : pairs_(pairs), free_(words_of(pairs), 0) {
    matching_.next.assign(pairs.rows(), kUnmatched);
    matching_.previous.assign(pairs.columns(), kUnmatched);
    for (uint32_t right = 0; right < pairs.columns(); ++right) set_bit(free_, right);
  }

  Matching run() {
    match_greedily();
    while (find_layers()) {
      for (uint32_t left = 0; left < pairs_.rows(); ++left)
        if (matching_.next[left] == kUnmatched) augment(left);
    }
    return std::move(matching_);
  }

 private:
  using Bits = std::vector<uint64_t>;

  static size_t words_of(const BitMatrix& pairs) { return (pairs.columns() + 63) / 64; }
  static void set_bit(Bits& bits, uint32_t i) { bits[i / 64] |= uint64_t{1} << (i % 64); }
  static void clear_bit(Bits& bits, uint32_t i) { bits[i / 64] &= ~(uint64_t{1} << (i % 64)); }

  // The first neighbour of `left` in `candidates`, which it leaves.
  uint32_t take_neighbour(uint32_t left, Bits& candidates) const {
    const std::span<const uint64_t> row = pairs_.row(left);
    for (size_t word = 0; word < row.size(); ++word) {
      const uint64_t common = row[word] & candidates[word];
      if (common == 0) continue;
      const auto right = static_cast<uint32_t>(word * 64 + std::countr_zero(common));
      clear_bit(candidates, right);
      return right;
    }
    return kUnmatched;
  }

  void match(uint32_t left, uint32_t right) {
    matching_.next[left] = right;
    matching_.previous[right] = left;
  }

  void match_greedily() {
    for (uint32_t left = 0; left < pairs_.rows(); ++left) {
      const uint32_t right = take_neighbour(left, free_);
      if (right == kUnmatched) continue;
      match(left, right);
      ++matching_.size;
    }
  }

  // Right nodes by their distance from the free left nodes over alternating paths, up to the first
  // layer with a free one; of that layer only the free ones. False if there is no such layer.
  bool find_layers() {
    layers_.clear();
    Bits seen(free_.size(), 0);
    std::vector<uint32_t> frontier;
    for (uint32_t left = 0; left < pairs_.rows(); ++left)
      if (matching_.next[left] == kUnmatched) frontier.push_back(left);
    while (!frontier.empty()) {
      Bits layer(free_.size(), 0);
      for (uint32_t left : frontier) add_bits(layer, pairs_.row(left));
      bool has_free = false;
      for (size_t word = 0; word < layer.size(); ++word) {
        layer[word] &= ~seen[word];
        seen[word] |= layer[word];
        has_free |= (layer[word] & free_[word]) != 0;
      }
      if (has_free) {
        keep_bits(layer, free_);
        layers_.push_back(std::move(layer));
        return true;
      }
      frontier.clear();
      for_each_bit(layer, [&](uint32_t right) { frontier.push_back(matching_.previous[right]); });
      layers_.push_back(std::move(layer));
    }
    return false;
  }

  // Depth first from one free left node through the layers; no right node is tried twice a round.
  void augment(uint32_t root) {
    lefts_.assign(1, root);
    rights_.clear();
    while (!lefts_.empty()) {
      const uint32_t right = take_neighbour(lefts_.back(), layers_[lefts_.size() - 1]);
      if (right == kUnmatched) {
        lefts_.pop_back();
        if (!rights_.empty()) rights_.pop_back();
        continue;
      }
      rights_.push_back(right);
      if (rights_.size() < layers_.size()) {
        lefts_.push_back(matching_.previous[right]);
        continue;
      }
      clear_bit(free_, right);
      for (size_t i = 0; i < lefts_.size(); ++i) match(lefts_[i], rights_[i]);
      ++matching_.size;
      return;
    }
  }

  const BitMatrix& pairs_;
  Matching matching_;
  Bits free_;                     // right nodes without a partner
  std::vector<Bits> layers_;      // right nodes not yet tried in this round, by distance
  std::vector<uint32_t> lefts_;   // the path that is being tried: lefts_[i] meets rights_[i],
  std::vector<uint32_t> rights_;  // whose partner is lefts_[i + 1]
};

}  // namespace

Matching maximum_matching(const BitMatrix& pairs) {
  return HopcroftKarp(pairs).run();
}

Matching maximum_matching(const Dag& dag) {
  BitMatrix pairs(dag.size(), dag.size());
  for (uint32_t from = 0; from < dag.size(); ++from)
    for (uint32_t to : dag.successors[from]) pairs.set(from, to);
  return maximum_matching(pairs);
}

}  // namespace nimble
