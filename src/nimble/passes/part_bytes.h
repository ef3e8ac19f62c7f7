#pragma once

#include <span>

#include "nimble/base/byte_set.h"
#include "nimble/base/op_attributes.h"
#include "nimble/base/part.h"

namespace nimble {

// All rows and columns of an op, as op_attributes.h counts them. A kernel that is not divisible one
// way may call all of it one row or column.
Part whole_part(const OpAttributes& attributes, std::span<const TensorDesc> operands);

// How many rows belong to the same image, matrix or head where an op is done for several: parts
// that are cut at multiples of this touch bytes of their own, even if those lie interleaved.
int64_t rows_of_one(const OpAttributes& attributes, std::span<const TensorDesc> operands);

// The bytes of an operand that a part of an op reads or writes, or some more; of what it writes, no
// more where the operand's rows lie one behind the other. `operands` are those that `attributes`
// describes, `part` counts as whole_part() does.
ByteSet part_bytes(const OpAttributes& attributes, std::span<const TensorDesc> operands,
                   size_t operand, const Part& part);

}  // namespace nimble
