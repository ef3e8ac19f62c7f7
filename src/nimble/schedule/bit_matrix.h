#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nimble {

// Rows of bits: a relation between small integers, 64 pairs at a time.
class BitMatrix {
 public:
  BitMatrix(size_t rows, size_t columns)
      : rows_(rows), columns_(columns), words_((columns + 63) / 64), bits_(rows * words_) {}

  size_t rows() const { return rows_; }
  size_t columns() const { return columns_; }
  bool test(size_t row, size_t column) const {
    return bits_[row * words_ + column / 64] >> (column % 64) & 1;
  }
  void set(size_t row, size_t column) {
    bits_[row * words_ + column / 64] |= uint64_t{1} << (column % 64);
  }
  std::span<uint64_t> row(size_t row) { return {bits_.data() + row * words_, words_}; }
  std::span<const uint64_t> row(size_t row) const { return {bits_.data() + row * words_, words_}; }

 private:
  size_t rows_;
  size_t columns_;
  size_t words_;
  std::vector<uint64_t> bits_;
};

// Sets in `target` what is set in `source`, a row as long.
inline void add_bits(std::span<uint64_t> target, std::span<const uint64_t> source) {
  for (size_t word = 0; word < target.size(); ++word) target[word] |= source[word];
}

// Keeps in `target` only what is set in `source`, a row as long.
inline void keep_bits(std::span<uint64_t> target, std::span<const uint64_t> source) {
  for (size_t word = 0; word < target.size(); ++word) target[word] &= source[word];
}

// Calls `visit(column)` for every set bit, in rising order.
template <class Visit>
void for_each_bit(std::span<const uint64_t> row, Visit visit) {
  for (size_t word = 0; word < row.size(); ++word)
    for (uint64_t rest = row[word]; rest != 0; rest &= rest - 1)
      visit(static_cast<uint32_t>(word * 64 + std::countr_zero(rest)));
}

}  // namespace nimble
