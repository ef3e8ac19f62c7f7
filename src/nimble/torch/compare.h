#pragma once

#include <ATen/ATen.h>

// How far results are from each other.
namespace nimble {

// On the CPU, where all tensors of the functions below must be.
at::Tensor copy_for_comparison(const at::Tensor& tensor);

bool same_bytes(const at::Tensor& a, const at::Tensor& b);
// Of the absolute values.
double largest_finite(const at::Tensor& tensor);
// The largest of all elements; not finite where an element is not.
double distance(const at::Tensor& a, const at::Tensor& b);
struct Change {
  const at::Tensor& before;
  const at::Tensor& after;
};
// Of the absolute values of what was changed; those that are finite.
double largest_change(const at::Tensor& before, const at::Tensor& after);
// As of the tensors themselves, if their shape was changed.
double distance_of_changes(const Change& a, const Change& b);

// The same bytes, or numbers that differ by `tolerance` at most, relative to the largest.
bool agree(const at::Tensor& a, const at::Tensor& b, double tolerance);
// By how much a change of numbers as large as these can be off because they are rounded.
double rounding_of_change(const at::Tensor& changed);
// What two runs wrote in place of `before`. A step of training moves parameters by little, so it is
// the change that is compared, relative to the largest one.
bool agree_in_change(const at::Tensor& before, const at::Tensor& a, const at::Tensor& b,
                     double tolerance);

}  // namespace nimble
