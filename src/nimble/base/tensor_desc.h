#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nimble {

// An element type. `code` is the framework's number for it; only `torch/` interprets it.
struct DType {
  int8_t code = 0;
  uint8_t bytes = 0;
  std::string name;

  bool operator==(const DType& other) const { return code == other.code; }
};

// A strided window on a buffer. Offset and strides count elements.
struct TensorDesc {
  DType dtype;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  bool conjugate = false;       // a lazy complex conjugate
  bool negative = false;        // a lazy negation
  bool wrapped_number = false;  // a Python number: weak in type promotion

  bool operator==(const TensorDesc&) const = default;
  int64_t numel() const;
  // The bytes [begin, end) from the first to behind the last element; empty if there is none.
  int64_t begin_byte() const;
  int64_t end_byte() const;
  // Whether two elements may have the same address (a tensor that was expanded).
  bool may_overlap_itself() const;
  // Whether the elements fill [begin_byte, end_byte) without gap or overlap.
  bool is_dense() const;
  // The same, the last dim fastest.
  bool is_row_major() const;
  std::string to_string() const;  // float32[1,3,224,224]
};

}  // namespace nimble
